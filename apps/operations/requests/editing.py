"""Edit what users write about an operation, without overwriting what another user just wrote."""

from typing import TYPE_CHECKING, TypedDict, cast

from django.db import transaction
from django.db.models import F

from apps.operations import attention
from apps.operations.errors import NotAllowed
from apps.operations.lifecycle import ACTIVE
from apps.operations.models import Operation, Tag
from apps.operations.requests import projects
from apps.operations.requests.services import get, require_whole
from apps.operations.requests.submission import clean_name, clean_tags
from trainops.clock import DatabaseNow
from trainops.runtime.errors import ConfigError
from trainops.text import name_problem

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_NOTES, MAX_ACKNOWLEDGEMENT = 10_000, 500
WRITTEN = ("name", "tags", "notes", "project")  # an edit of these names the revision it began with
DATED = {"archived", "acknowledged"}  # stored as the time at which they were set


class Changes(TypedDict, total=False):
    """The new values; what is left out stays."""

    name: str
    tags: list[str]
    notes: str
    project: str
    is_favourite: bool
    archived: bool
    acknowledged: bool
    acknowledgement: str  # a note on it; only with what is acknowledged


def edit(
    *, operation_id: str, actor: "User", changes: Changes, revision: int | None = None
) -> Operation:
    """Change what is written about an operation; its event names the fields that differ.

    Raises:
        ConfigError: a value is not allowed, or `revision` is missing for one of WRITTEN.
        NotAllowed: it was edited after `revision`, its state does not allow the change, or the
            project has other members.
    """
    operation = get(operation_id)
    require_whole(operation)
    checked = _checked(operation, changes)
    if revision is None and any(name in changes for name in WRITTEN):
        problem = f"got none; allowed: the revision of the operation, now {operation.revision}"
        raise ConfigError({"revision": problem})
    changes = _different(operation, checked)
    projects.require_member(changes.get("project", ""), actor)
    if not changes and revision in (None, operation.revision):
        return operation
    with transaction.atomic():
        same = operation.row if revision is None else operation.row.filter(revision=revision)
        if changes.get("archived"):
            same = same.exclude(state__in=ACTIVE)
        if not same.update(revision=F("revision") + 1, **_columns(changes)):
            raise _conflict(operation_id, revision)
        if "tags" in changes:
            Tag.objects.filter(operation_id=operation_id).delete()
            Tag.objects.bulk_create(
                Tag(operation_id=operation_id, name=tag) for tag in changes["tags"]
            )
        operation.record("EDITED", actor=actor.get_username(), note=_note(operation, changes))
    return get(operation_id)


def refusal(operation: Operation, changes: Changes) -> str:
    """Return why the state of the operation does not allow the changes; "" if it does."""
    if changes.get("archived") and operation.state in ACTIVE:
        return f"it is {operation.state.lower()}: cancel it first"
    if changes.get("acknowledged") and not attention.is_needed(attention.row_of(operation)):
        return "it does not need attention"
    is_acknowledged = changes.get("acknowledged", operation.acknowledged_at is not None)
    if changes.get("acknowledgement") and not is_acknowledged:
        return "its acknowledgement has a note only if it is acknowledged"
    return ""


def _checked(operation: Operation, changes: Changes) -> Changes:
    """Return the changes as they are stored."""
    if problem := refusal(operation, changes):
        raise NotAllowed("EDIT_NOT_ALLOWED", f"{operation.name}: {problem}.")
    checked = changes.copy()
    if "name" in changes:
        checked["name"] = _required(clean_name(changes["name"]))
    if "tags" in changes:
        checked["tags"] = clean_tags(changes["tags"])
    if "notes" in changes:
        checked["notes"] = _text("notes", changes["notes"], MAX_NOTES)
    if "project" in changes:
        checked["project"] = projects.clean(changes["project"])
    if "acknowledgement" in changes:
        text = changes["acknowledgement"].strip()
        checked["acknowledgement"] = _text("acknowledgement", text, MAX_ACKNOWLEDGEMENT)
    elif "acknowledged" in changes:
        checked["acknowledgement"] = ""  # a note on an earlier one
    return checked


def _different(operation: Operation, changes: Changes) -> Changes:
    """Return those of the changes whose value is not that of the operation."""
    now: dict[str, object] = {
        "name": operation.name,
        "tags": sorted(operation.tags.values_list("name", flat=True)),
        "notes": operation.notes,
        "project": operation.project,
        "is_favourite": operation.is_favourite,
        "archived": operation.archived_at is not None,
        "acknowledged": operation.acknowledged_at is not None,
        "acknowledgement": operation.acknowledgement,
    }
    return cast(Changes, {name: value for name, value in changes.items() if value != now[name]})


def _columns(changes: Changes) -> dict[str, object]:
    """Return the values of the columns that hold the changes."""
    columns = {name: value for name, value in changes.items() if name not in ("tags", *DATED)}
    moments = {
        f"{name}_at": DatabaseNow() if changes.get(name) else None
        for name in DATED & changes.keys()
    }
    return columns | moments


def _required(name: str) -> str:
    if not name:
        raise ConfigError({"name": "got ''; allowed: 1 to 120 characters"})
    return name


def _text(field: str, text: str, limit: int) -> str:
    if len(text) > limit:
        raise ConfigError({field: f"has {len(text)} characters; at most {limit}"})
    lines = text.replace("\r\n", "\n") if field == "notes" else text
    checked = lines.replace("\n", "").replace("\t", "") if field == "notes" else lines
    if problem := name_problem(checked):
        raise ConfigError({field: problem})
    return lines


def _note(operation: Operation, changes: Changes) -> str:
    unsaid = ("name", "acknowledgement")
    said = [name.removeprefix("is_") for name in changes if name not in unsaid]
    if text := changes.get("acknowledgement"):
        said.append(f"acknowledgement: {text}")
    if "name" in changes:
        said.insert(0, f"name: {operation.name!r} → {changes['name']!r}")
    return ", ".join(said)


def _conflict(operation_id: str, revision: int | None) -> NotAllowed:
    now = get(operation_id)
    event = now.events.filter(what="EDITED").first()
    edited = f"edited by {event.actor}" if event else "edited"
    what = "resumed" if revision in (None, now.revision) else edited
    return NotAllowed(
        "EDIT_CONFLICT",
        f"The operation was {what} meanwhile; its name is now {now.name!r}. Nothing was "
        "changed. Load it again, then edit it.",
        revision=revision,
        current_revision=now.revision,
        name=now.name,
    )
