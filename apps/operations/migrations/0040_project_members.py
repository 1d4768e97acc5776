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
            field=models.ManyToManyField(blank=True, help_text='Users who may submit to the project, besides admins; by default every user.', related_name='project_shares', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterField(
            model_name='study',
            name='submission',
            field=models.JSONField(help_text='Tags, priority, label and project of each operation.'),
        ),
    ]
