
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('installation', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Counter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('labels', models.CharField(help_text='JSON object with sorted keys.', max_length=255)),
                ('value', models.FloatField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('name', 'labels'), name='one_counter')],
            },
        ),
    ]
