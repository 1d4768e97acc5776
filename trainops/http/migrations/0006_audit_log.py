from django.db import migrations, models

import trainops.clock
from trainops.http.audit_guard import GUARD


def guard(apps, schema_editor):
    for statement in GUARD.create[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def unguard(apps, schema_editor):
    for statement in GUARD.drop[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0005_token_uses'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(db_default=trainops.clock.DatabaseNow())),
                ('event', models.CharField(max_length=40)),
                ('actor', models.CharField(blank=True, help_text='Username; empty: the platform.', max_length=150)),
                ('address', models.CharField(blank=True, help_text='Address of the request.', max_length=45)),
                ('details', models.JSONField(default=dict)),
            ],
            options={'ordering': ['-created_at', '-id'], 'verbose_name_plural': 'audit entries'},
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['-created_at', '-id'], name='audit_newest'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['actor', '-created_at', '-id'], name='audit_of_actor'),
        ),
        migrations.RunPython(guard, unguard),
    ]
