"""Files of a recipe on this server that differ from those that a checkpoint was made with.

Asked before a person's resume or fork. Restarts by the platform are not asked about: their receipts
tell.
"""

from collections.abc import Mapping, Sequence

from apps.checkpoints import environments
from apps.checkpoints.models import Checkpoint
from apps.operations.errors import NotAllowed
from apps.operations.models import Operation
from trainops.kind import KINDS
from trainops.runtime import provenance
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import ConfigError


def of(operation: Operation, start: Checkpoint) -> list[str]:
    """Return the changed files; empty where the checkpoint's record of its code is not known."""
    environment = environments.of([start])[start.pk]
    return [] if isinstance(environment, str) else since(operation, environment)


def since(operation: Operation, environment: Mapping[str, object]) -> list[str]:
    """Return the files that differ from those of the environment of a checkpoint."""
    try:
        config = KINDS[operation.kind].parse_config(operation.config)
    except ConfigError:  # its recipe is not installed here
        return []
    return provenance.changed_on_disk(config.code(), environment)


def are_changed(operation: Operation, starts: Sequence[Checkpoint]) -> list[bool]:
    """Return for each checkpoint whether files were changed; each set of files is read once."""
    found, known = environments.of(starts), dict[str, bool]()
    changed = []
    for each in starts:
        environment = found[each.pk]
        if isinstance(environment, str):
            changed.append(False)
            continue
        key = str(environment.get(provenance.CODE))
        if key not in known:
            known[key] = bool(since(operation, environment))
        changed.append(known[key])
    return changed


def require_same(operation: Operation, start: Checkpoint) -> None:
    """Raise NotAllowed where a resume from this checkpoint would run changed files."""
    if changed := of(operation, start):
        waived = operation.config.get("exact") == "required"
        raise refusal("A resume", changed, waives_exact=waived, checkpoint_id=start.pk)


def require_accepted(
    source: Operation, start: Checkpoint, config: OperationConfig, *, is_accepted: bool
) -> None:
    """Raise where a fork from this checkpoint would run changed files.

    config: of the fork; one that requires exactness is refused, also where that is accepted.

    Raises ConfigError and NotAllowed.
    """
    is_required = config.exact == "required"
    if is_accepted and not is_required:
        return
    changed = of(source, start)
    if changed and is_required:
        raise ConfigError({"exact": f"got required; {differing(changed)}; allowed: reported"})
    if changed:
        raise refusal("A fork", changed, checkpoint_id=start.pk)


def not_exact(changed: Sequence[str]) -> str:
    """Return the sentence of a preview that names these files."""
    names = provenance.named(changed)
    return f"It is not exact: these files of the recipe on this server differ: {names}."


def differing(changed: Sequence[str]) -> str:
    """Return the clause that names these files."""
    return (
        "these files of the recipe on this server differ from those of the checkpoint: "
        f"{provenance.named(changed)}"
    )


def refusal(
    subject: str, changed: Sequence[str], *, waives_exact: bool = False, **details: object
) -> NotAllowed:
    """Return the error that names the files.

    subject: what would not be exact. waives_exact: to accept it waives `exact: required`, too.
    """
    further = " That accepts any other difference, too, which exact: required refuses."
    return NotAllowed(
        "CODE_CHANGED",
        f"{subject} would not be exact: {differing(changed)}. Nothing was changed. "
        f"Restore the files, or accept that it is not exact.{further if waives_exact else ''}",
        changed_files=list(changed),
        **details,
    )
