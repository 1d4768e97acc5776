
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workers', '0004_storage_process_and_asking'),
    ]

    operations = [
        migrations.AddField(
            model_name='worker',
            name='ends_at',
            field=models.DateTimeField(blank=True, help_text='Time at which it saves and ends by itself.', null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='idle_exit_seconds',
            field=models.FloatField(blank=True, help_text='Seconds without work after which it ends by itself.', null=True),
        ),
    ]
