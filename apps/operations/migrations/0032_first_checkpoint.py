
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('operations', '0031_known_damage'),
    ]

    operations = [
        migrations.AddField(
            model_name='operation',
            name='first_checkpoint_seconds',
            field=models.PositiveIntegerField(blank=True, help_text='Expected seconds from a claim to the first checkpoint, as the latest attempt measured them; at first the interval of its config.', null=True),
        ),
    ]
