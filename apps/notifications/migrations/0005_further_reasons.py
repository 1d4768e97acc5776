from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0004_rules_off_and_changed'),
    ]

    operations = [
        migrations.AlterField(
            model_name='rule',
            name='on_attention',
            field=models.BooleanField(default=False, help_text='New reasons for attention, but for failures.', verbose_name='attention'),
        ),
        migrations.AlterField(
            model_name='rule',
            name='reason',
            field=models.CharField(blank=True, help_text='Reason of the end or for attention. Empty: any.', max_length=24),
        ),
    ]
