from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0004_recent_counts'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='token', name='token_scope_known'),
        migrations.AlterField(
            model_name='token',
            name='scope',
            field=models.CharField(choices=[('user', 'Acts for its owner'), ('read', 'Reads for its owner'), ('worker', 'Worker endpoints only')], default='user', max_length=10),
        ),
        migrations.AddConstraint(
            model_name='token',
            constraint=models.CheckConstraint(condition=models.Q(('scope__in', ['user', 'read', 'worker'])), name='token_scope_known'),
        ),
        migrations.AddField(
            model_name='token',
            name='last_used_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='token',
            name='last_used_from',
            field=models.CharField(blank=True, db_default='', default='', editable=False, max_length=45),
        ),
    ]
