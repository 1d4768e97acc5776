"""Migrations and versions: which are pending, and whether older processes work in parallel.

A migration either expands the schema (processes of the version before work with it) or contracts it
(they do not). The name of one that contracts begins with `contract_` after its number. The table
django_migrations has the names, so a version that does not know a migration can read it, too.
"""

import re
from collections.abc import Collection, Iterator
from functools import cache

import django.apps
from django.db import connection, migrations
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED, Field

OUR_APPS = ("apps.", "trainops.")
CONTRACT = re.compile(r"\d{4}_contract_\w+")
# The newest migration of version 0.1.0, by app. No version works with only a part of these.
FIRST_RELEASE = {
    "access": 6,
    "checkpoints": 4,
    "datasets": 4,
    "installation": 2,
    "ledger": 1,
    "notifications": 5,
    "operations": 38,
    "sinks": 1,
    "workers": 6,
}
Key = tuple[str, str]  # label of the app, name of the migration


class WrongDatabase(Exception):
    """The database is not one that this version works with; one line that says what to do."""


def require_usable() -> None:
    """Raise WrongDatabase if this version does not work with the database as it is."""
    require_known()
    if missing := len(pending()):
        raise WrongDatabase(
            f"The database is older than this trainops ({missing} migrations are missing). "
            "Start this version on the first machine first, "
            "or run: python -m trainops.launch.prepare"
        )


def require_known() -> None:
    """Raise WrongDatabase if a newer version contracted the schema. Reads one small table."""
    if refused := [key for key in unknown() if is_contract(key)]:
        raise WrongDatabase(
            f"The database was changed by a newer trainops (it has {listed(refused)}), and this "
            "version does not work with it. Update trainops, or use another database."
        )


def plan() -> list[Migration]:
    """Return what is to be applied. Raises WrongDatabase if another version's are mixed in."""
    require_known()
    missing, others = pending(), unknown()
    if missing and others:
        raise WrongDatabase(
            f"The database was changed by another trainops (it has {listed(others)}), and misses "
            f"{len(missing)} migrations of this version. Update trainops to one that has both."
        )
    return missing


def unknown() -> list[Key]:
    """Return the applied migrations of trainops that this version does not have."""
    known, ours = _known()
    return sorted(
        key for key in _applied()
        if key[0] in ours and key not in known
    )  # fmt: skip


def pending() -> list[Migration]:
    """Return what this version has still to apply, in this order."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [migration for migration, _ in plan]


def is_contract(key: Key) -> bool:
    """Whether a migration is declared as one that older processes do not work with."""
    return CONTRACT.fullmatch(key[1]) is not None


def is_of_first_release(key: Key) -> bool:
    number = key[1][:4]
    return number.isdigit() and int(number) <= FIRST_RELEASE.get(key[0], 0)


def is_empty() -> bool:
    """Whether no migration of an operation has ever been applied: no process has used it."""
    return not any(label == "operations" for label, _ in _applied())


def listed(keys: list[Key]) -> str:
    """Return the names, the first three of them in full."""
    names = [".".join(key) for key in keys]
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")


def reasons_to_stop(plan: list[Migration]) -> dict[Key, list[str]]:
    """Return the migrations of a plan that older processes do not work with, with the reasons."""
    found: dict[Key, list[str]] = {}
    for migration in plan:
        key = (migration.app_label, migration.name)
        reasons = ["is older than version 0.1.0"] if is_of_first_release(key) else []
        reasons = reasons or list(contract_steps(migration, _state_before(key)))
        if is_contract(key):
            reasons = reasons or ["is declared as a contract step"]
        if reasons:
            found[key] = reasons
    return found


def contract_steps(migration: Migration, before: ProjectState) -> Iterator[str]:
    """Yield what a migration does that older processes do not work with.

    What code of the migration does (RunPython, RunSQL) cannot be judged: it counts, unless the
    migration says in `older_versions_work` why they do.
    """
    state, excuse = before.clone(), getattr(migration, "older_versions_work", "")
    for operation in migration.operations:
        for each in _steps(operation, migration.app_label, state):
            if not (excuse and each.startswith("runs ")):
                yield each
        operation.state_forwards(migration.app_label, state)


def _steps(  # noqa: C901 - one case for each operation of Django
    operation: Operation, label: str, state: ProjectState
) -> Iterator[str]:
    match operation:
        case migrations.SeparateDatabaseAndState():
            for each in operation.database_operations:
                yield from _steps(each, label, state)
        case migrations.RemoveField():
            yield f"removes {operation.model_name}.{operation.name}"
        case migrations.RenameField():
            yield f"renames {operation.model_name}.{operation.old_name}"
        case migrations.DeleteModel():
            yield f"removes the table of {operation.name}"
        case migrations.RenameModel():
            yield f"renames the table of {operation.old_name}"
        case migrations.AlterModelTable():
            yield f"renames the table of {operation.name}"
        case migrations.AlterUniqueTogether():
            yield f"changes what is unique in {operation.name}"
        case migrations.AddConstraint():
            yield f"adds the constraint {operation.constraint.name} to {operation.model_name}"
        case migrations.AddField():
            yield from _of_new(f"{operation.model_name}.{operation.name}", operation.field)
        case migrations.AlterField():
            old = state.models[label, operation.model_name_lower].fields[operation.name]
            yield from _of_altered(f"{operation.model_name}.{operation.name}", old, operation.field)
        case migrations.RunPython() | migrations.RunSQL():
            yield f"runs {type(operation).__name__}, which cannot be judged"


def _of_new(name: str, field: "Field[object, object]") -> Iterator[str]:
    if not (field.many_to_many or field.null or _has_default(field)):
        yield f"adds {name}, NOT NULL without a default of the database"


def _of_altered(
    name: str, old: "Field[object, object]", new: "Field[object, object]"
) -> Iterator[str]:
    if _type_of(old) != _type_of(new) and not _is_longer(old, new):
        yield f"changes the type of {name}"
    if old.db_column != new.db_column:
        yield f"renames {name}"
    if new.unique and not old.unique:
        yield f"makes {name} unique"
    if old.null and not new.null:  # older processes insert NULL by name
        yield f"makes {name} NOT NULL"
    elif not new.null and _has_default(old) and not _has_default(new):
        yield f"takes the default of {name} away"


def _type_of(field: "Field[object, object]") -> object:
    """Return what the column holds. A relation is not bound to a model here."""
    if field.remote_field is not None:
        return type(field), str(field.remote_field.model).lower()
    is_checked = field.get_internal_type().startswith("Positive")
    return field.db_parameters(connection)["type"], is_checked


def _is_longer(old: "Field[object, object]", new: "Field[object, object]") -> bool:
    return type(old) is type(new) and (old.max_length or 0) < (new.max_length or 0)


def _has_default(field: "Field[object, object]") -> bool:
    return getattr(field, "db_default", NOT_PROVIDED) is not NOT_PROVIDED


def _state_before(key: Key) -> ProjectState:
    return _loader().project_state([key], at_end=False)


def _applied() -> Collection[Key]:
    return MigrationRecorder(connection).applied_migrations()


@cache
def _loader() -> MigrationLoader:
    return MigrationLoader(None)


@cache
def _known() -> tuple[frozenset[Key], frozenset[str]]:
    """Return the migrations of this version, and the labels of its apps."""
    loader = _loader()
    known = frozenset({*(loader.disk_migrations or ()), *loader.replacements})
    configs = django.apps.apps.get_app_configs()
    return known, frozenset(each.label for each in configs if each.name.startswith(OUR_APPS))
