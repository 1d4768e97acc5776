import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import trainops.clock


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0008_second_factor'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Identity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=255)),
                ('subject', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(db_default=trainops.clock.DatabaseNow(), editable=False)),
                ('last_used_at', models.DateTimeField(editable=False, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identities', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'identities',
                'constraints': [models.UniqueConstraint(fields=('issuer', 'subject'), name='identity_of_one_account'), models.UniqueConstraint(fields=('user', 'issuer'), name='identity_one_of_issuer')],
            },
        ),
    ]
