from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('operations', '0039_shares'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='share',
            name='members',
            field=models.ManyToManyField(blank=True, help_text='Users who may submit to the project, besides admins.', related_name='project_shares', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='share',
            name='members_only',
            field=models.BooleanField(db_default=False, default=False, help_text='Whether only members and admins submit to the project; so if it has members.'),
        ),
        migrations.AddField(
            model_name='study',
            name='project',
            field=models.CharField(blank=True, db_default='', default='', max_length=64),
        ),
    ]
