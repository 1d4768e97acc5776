from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0001_initial'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='delivery', name='one_delivery_per_event'),
        migrations.RenameModel('Webhook', 'Rule'),
        migrations.RenameField('rule', 'url', 'target'),
        migrations.RenameField('delivery', 'webhook', 'rule'),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('rule', 'event_id'), name='one_delivery_per_event'),
        ),
    ]
