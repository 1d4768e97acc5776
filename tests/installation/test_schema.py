"""Migrations that older versions do not work with are declared as contract steps."""

import pytest
from django.apps import apps
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState, ProjectState
from django.db.models import NOT_PROVIDED

from apps.installation import schema

pytestmark = pytest.mark.django_db


FIELDS = {
    "Thing": {"name": models.CharField(max_length=10, null=True), "size": models.IntegerField()},
    "Part": {"of": models.ForeignKey("app.Thing", models.CASCADE)},
    "Other": {},
}


def steps(*operations, **attributes):
    state = ProjectState()
    for name, fields in FIELDS.items():
        key = ("id", models.AutoField(primary_key=True))
        state.add_model(ModelState("app", name, [key, *fields.items()]))
    made = type(
        "Migration", (migrations.Migration,), {"operations": list(operations), **attributes}
    )
    return list(schema.contract_steps(made("0099_made_up", "app"), state))


def altered(**options):
    return migrations.AlterField("Thing", "name", models.CharField(**options))


def test_every_later_migration_that_contracts_is_named_so():
    loader = MigrationLoader(None)
    _, ours = schema._known()
    later = [
        migration for key, migration in loader.disk_migrations.items()
        if key[0] in ours and not schema.is_of_first_release(key)
    ]  # fmt: skip
    for key, reasons in schema.reasons_to_stop(later).items():
        assert schema.is_contract(key), f"{'.'.join(key)} {reasons}: name it NNNN_contract_…"


@pytest.mark.parametrize(
    "operation",
    [
        migrations.RemoveField("Thing", "name"),
        migrations.RenameField("Thing", "name", "title"),
        migrations.DeleteModel("Thing"),
        migrations.RenameModel("Thing", "Other"),
        migrations.AlterModelTable("Thing", "things"),
        migrations.AddField("Thing", "weight", models.IntegerField(default=0)),
        altered(max_length=10),
        altered(max_length=10, db_default=""),
        altered(max_length=5, null=True),
        altered(max_length=10, null=True, unique=True),
        altered(max_length=10, null=True, db_column="title"),
        migrations.AlterField("Thing", "size", models.PositiveIntegerField()),
        migrations.AlterField("Part", "of", models.ForeignKey("app.Other", models.CASCADE)),
        migrations.RunSQL("SELECT 1"),
        migrations.RunPython(migrations.RunPython.noop),
        migrations.SeparateDatabaseAndState([migrations.RemoveField("Thing", "name")]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_older_processes_do_not_work_with_is_found(operation):
    assert len(steps(operation)) == 1


@pytest.mark.parametrize(
    "operation",
    [
        migrations.CreateModel("Other", [("id", models.AutoField(primary_key=True))]),
        migrations.AddField("Thing", "weight", models.IntegerField(null=True)),
        migrations.AddField("Thing", "weight", models.IntegerField(db_default=0)),
        migrations.AddIndex("Thing", models.Index(fields=["name"], name="thing_name")),
        altered(max_length=20, null=True),
        altered(max_length=10, null=True, choices=[("a", "A")]),
        migrations.AlterField("Part", "of", models.ForeignKey("app.thing", models.PROTECT)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_only_expands_is_no_contract_step(operation):
    assert steps(operation) == []


def test_every_migration_of_every_package_can_be_judged():
    loader = MigrationLoader(None)
    assert schema.reasons_to_stop(list(loader.disk_migrations.values()))


def test_code_of_a_migration_is_excused_by_a_reason_and_nothing_else_is():
    run = migrations.RunPython(migrations.RunPython.noop)
    assert steps(run, older_versions_work="Fills a column that they do not know.") == []
    removes = migrations.RemoveField("Thing", "name")
    assert steps(run, removes, older_versions_work="No.") == ["removes Thing.name"]


def test_every_column_with_a_default_of_the_database_has_one_in_python():
    """Else a new instance, and a form for one, has an expression as its value."""
    missing = [
        f"{model.__name__}.{each.name}"
        for model in apps.get_models()
        for each in model._meta.concrete_fields
        if each.db_default is not NOT_PROVIDED
        and each.default is NOT_PROVIDED
        and not hasattr(each.db_default, "resolve_expression")  # a time
        and each.editable
    ]
    assert missing == ["Study.sampler_state", "Suggestion.state"]  # which no form has
