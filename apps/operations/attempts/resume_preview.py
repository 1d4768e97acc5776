"""What a resume would do, without doing it: where it continues, and whether that is exact."""

from collections.abc import Iterator
from itertools import takewhile

from apps.checkpoints import environments
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import recovery
from apps.operations.models import Operation
from apps.operations.requests import changed_code, services, uncertainty
from apps.operations.requests.previews import Preview
from trainops.quantities import plural
from trainops.runtime.receipt import MATTERS, NEW_RUN


def preview(*, operation_id: str, checkpoint_id: str = "") -> Preview:
    """Return what a resume would do. Raises what the resume itself would raise at once."""
    operation = services.resumable(operation_id)
    checkpoint, _ = services.first_healthy(operation, checkpoint_id)
    sentences = notes(operation, checkpoint)
    if operation.config.get("exact") == "required":
        sentences.append(
            "The config requires an exact resume: one that is not fails, and says why."
        )
    changed = changed_code.of(operation, checkpoint)
    place = services.position(checkpoint, operation)
    return Preview(checkpoint, place, (), sentences, changed_files=changed)


def notes(operation: Operation, start: Checkpoint) -> list[str]:
    """Say in sentences what a resume from this checkpoint repeats, passes over and requires."""
    again = max(0, operation.step - start.step)
    repeated = f", repeating {plural(again, operation.unit or 'step')}" if again else ""
    continues = f"It continues from {services.position(start, operation)}{repeated}."
    return [
        f"{continues} The checkpoint is verified first.",
        *_passed_over(operation, start),
        *_unrecorded(operation),
        *_exactness(operation, start),
    ]


def _passed_over(operation: Operation, start: Checkpoint) -> Iterator[str]:
    """Say which newer checkpoints are known to be damaged."""
    rows = Checkpoint.objects.filter(operation=operation).newest_first()
    for each in takewhile(lambda row: row != start, rows):
        if each.health != Checkpoint.Health.HEALTHY:
            place = services.position(each, operation)
            yield f"The newer checkpoint at {place} is {each.health}: {each.damage.findings}."


def _unrecorded(operation: Operation) -> Iterator[str]:
    """Say which newer checkpoints the storage holds, and the database does not know."""
    try:
        found = recovery.unrecorded(operation)
    except OSError as error:
        yield f"The storage is currently unavailable: {error}."
        return
    if found:
        count = plural(len(found), "newer checkpoint")
        yield (
            f"The storage holds {count}, up to step {found[0].step:,}, without a database row: "
            "recover them first in the Checkpoints tab."
        )


def _exactness(operation: Operation, start: Checkpoint) -> Iterator[str]:
    """Say what is known of its exactness here; the worker compares the rest."""
    uncertain = uncertainty.of(operation, start)
    if uncertain:
        yield uncertainty.sentence(uncertain)
    environment = environments.of([start])[start.pk]
    if isinstance(environment, str):
        yield f"Whether it is exact is not known: {environment[0].lower()}{environment[1:]}"
        return
    if not environment:
        yield "The checkpoint has no record of its code and environment: neither is compared."
        return
    if changed := changed_code.since(operation, environment):
        yield changed_code.not_exact(changed)
    recorded = [f"{name} {environment[key]}" for key, name in MATTERS.items() if key in environment]
    if recorded and not changed and not uncertain and NEW_RUN not in environment:
        yield (
            f"It is exact only on a worker with the same {', '.join(recorded)}; "
            "the receipt of the resume lists what differs."
        )
