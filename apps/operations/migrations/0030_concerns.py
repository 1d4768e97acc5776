from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('operations', '0029_extremes'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='operation',
            name='acknowledgement',
            field=models.CharField(blank=True, db_default='', default='', help_text='Note of the user on it.', max_length=500),
        ),
        migrations.AddField(
            model_name='operation',
            name='concerns',
            field=models.CharField(blank=True, db_default='', default='', help_text='Further reasons why it needs attention: codes, separated by commas.', max_length=96),
        ),
        migrations.AlterField(
            model_name='operation',
            name='acknowledged_at',
            field=models.DateTimeField(blank=True, help_text='When what needs attention was acknowledged.', null=True),
        ),
        migrations.AddIndex(
            model_name='operation',
            index=models.Index(condition=models.Q(('concerns__gt', '')), fields=['concerns'], name='operation_concerns'),
        ),
    ]
