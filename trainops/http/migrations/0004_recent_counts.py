from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0003_sign_in_failures'),
    ]

    operations = [
        migrations.RenameModel('SignInFailures', 'RecentCount'),
        migrations.RenameField('recentcount', 'num_failures', 'number'),
        migrations.AlterField(
            model_name='recentcount',
            name='key',
            field=models.CharField(help_text='Digest of what is counted and for whom.', max_length=32, primary_key=True, serialize=False),
        ),
    ]
