from django.db import migrations, models

import trainops.clock


class Migration(migrations.Migration):
    dependencies = [("checkpoints", "0004_best_of")]

    operations = [
        migrations.AddField(
            model_name="checkpoint",
            name="signature",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Public key and signature of its manifest and place; empty: not signed.",
                max_length=200,
            ),
        ),
        migrations.CreateModel(
            name="SigningKey",
            fields=[
                (
                    "public_key",
                    models.CharField(
                        help_text="Ed25519, in hexadecimal.",
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                (
                    "endorsement",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        help_text="Signature of this row by the key of this installation.",
                        max_length=200,
                    ),
                ),
                ("added_at", models.DateTimeField(db_default=trainops.clock.DatabaseNow())),
            ],
        ),
    ]
