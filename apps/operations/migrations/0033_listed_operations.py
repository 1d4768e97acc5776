"""Whether an operation is a subtask as a column, and indexes of what lists show by default."""

from django.conf import settings
from django.db import migrations, models


def mark_subtasks(apps, schema_editor):
    operations = apps.get_model("operations", "Operation").objects
    operations.filter(subtask__isnull=False).update(is_subtask=True)


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0032_first_checkpoint"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="operation",
            name="operation_owner",
        ),
        migrations.RemoveIndex(
            model_name="operation",
            name="operation_active_of",
        ),
        migrations.RemoveIndex(
            model_name="operation",
            name="operation_self_check",
        ),
        migrations.RemoveIndex(
            model_name="operation",
            name="operation_state",
        ),
        migrations.AddField(
            model_name="operation",
            name="is_subtask",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Whether it computes a part of another one.",
            ),
        ),
        migrations.RunPython(mark_subtasks, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True), ("is_subtask", False)),
                fields=["-created_at", "-id", "name", "state", "archived_at", "is_subtask"],
                name="operation_listed",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True), ("is_subtask", False)),
                fields=[
                    "state",
                    "-created_at",
                    "-id",
                    "kind",
                    "owner",
                    "archived_at",
                    "is_subtask",
                ],
                name="operation_listed_state",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True), ("is_subtask", False)),
                fields=["kind", "-created_at", "-id", "archived_at", "is_subtask"],
                name="operation_listed_kind",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True), ("is_subtask", False)),
                fields=["owner", "-created_at", "-id", "archived_at", "is_subtask"],
                name="operation_listed_owner",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(
                    ("archived_at__isnull", True),
                    ("is_subtask", False),
                    ("state__in", ["PENDING", "RESUMING", "RUNNING"]),
                ),
                fields=["-created_at", "-id", "state", "archived_at", "is_subtask"],
                name="operation_listed_active",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(
                    ("archived_at__isnull", True),
                    ("is_subtask", False),
                    ("state__in", ["CANCELLED", "FAILED"]),
                ),
                fields=[
                    "-created_at",
                    "-id",
                    "state",
                    "kind",
                    "owner",
                    "archived_at",
                    "is_subtask",
                ],
                name="operation_listed_stopped",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(
                    ("archived_at__isnull", True),
                    ("is_subtask", False),
                    models.Q(
                        ("state", "FAILED"),
                        ("self_check__in", ["differs", "not_loaded"]),
                        ("concerns__gt", ""),
                        _connector="OR",
                    ),
                    ("acknowledged_at__isnull", True),
                ),
                fields=[
                    "-created_at",
                    "-id",
                    "state",
                    "self_check",
                    "concerns",
                    "acknowledged_at",
                    "kind",
                    "owner",
                    "archived_at",
                    "is_subtask",
                ],
                name="operation_attention",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["state", "-created_at", "-id"], name="operation_state"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(("state__in", ["PENDING", "RESUMING", "RUNNING"])),
                fields=["owner", "is_subtask", "state"],
                name="operation_active_of",
            ),
        ),
    ]
