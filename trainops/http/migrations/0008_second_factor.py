import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import trainops.clock


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0007_service_accounts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SecondFactor',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='second_factor', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('secret', models.TextField(editable=False)),
                ('last_period', models.BigIntegerField(default=0, editable=False)),
                ('created_at', models.DateTimeField(db_default=trainops.clock.DatabaseNow(), editable=False)),
            ],
        ),
        migrations.CreateModel(
            name='RecoveryCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('factor', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='recovery_codes', to='access.secondfactor')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('factor', 'digest'), name='recovery_code_once')],
            },
        ),
    ]
