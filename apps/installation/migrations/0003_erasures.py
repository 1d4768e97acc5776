from django.db import migrations, models

import trainops.clock


class Migration(migrations.Migration):
    dependencies = [("installation", "0002_counters")]

    operations = [
        migrations.CreateModel(
            name="BackupPlace",
            fields=[
                (
                    "location",
                    models.CharField(
                        help_text="Directory, or URL of a bucket.",
                        max_length=500,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "keep",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Number of backups that the last one kept; empty: all.",
                        null=True,
                    ),
                ),
                ("last_made_at", models.DateTimeField(db_default=trainops.clock.DatabaseNow())),
            ],
        ),
        migrations.CreateModel(
            name="Erasure",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("username", models.CharField(max_length=150)),
                ("began_at", models.DateTimeField(db_default=trainops.clock.DatabaseNow())),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "plan",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Content of the erasure, until it is in the certificate.",
                    ),
                ),
                (
                    "certificate",
                    models.JSONField(
                        blank=True,
                        help_text="Signed certificate; empty: not finished.",
                        null=True,
                    ),
                ),
            ],
            options={
                "ordering": ["-began_at", "-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("finished_at__isnull", True)),
                        fields=("username",),
                        name="one_unfinished_erasure",
                    )
                ],
            },
        ),
    ]
