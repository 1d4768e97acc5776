import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('operations', '0026_list_indexes'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='logchunk',
            index=models.Index(fields=['operation', 'id'], name='log_of_operation'),
        ),
        migrations.AlterField(
            model_name='logchunk',
            name='operation',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='log_chunks', to='operations.operation'),
        ),
    ]
