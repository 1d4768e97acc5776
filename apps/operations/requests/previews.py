"""What a fork, an extension or a warm start would do, without doing it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from apps.operations.requests import (
    changed_code,
    earlier_resumes,
    forking,
    services,
    uncertainty,
    warm_starting,
)
from apps.operations.requests.initial_checkpoints import about_ledgers
from trainops.kind import KINDS
from trainops.runtime.config import differences

Verb = Literal["fork", "extend", "warm_start"]


@dataclass(frozen=True, slots=True)
class Change:
    """A field of the config that differs from that of the source."""

    field: str  # dotted path
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class Preview:
    """`notes` say what becomes of the training, in sentences.

    changed_files: of the recipe, which keep a resume or a fork from being exact.
    """

    checkpoint: Checkpoint
    place: str  # of the checkpoint
    changes: Sequence[Change]
    notes: Sequence[str]
    changed_files: Sequence[str] = ()


def preview(
    verb: Verb,
    *,
    operation_id: str,
    checkpoint_id: str = "",
    config: Mapping[str, object] | None = None,
    to: int | None = None,
) -> Preview:
    """Return what the request would do. Raises what the request itself would raise at once."""
    source = services.get(operation_id)
    services.require_whole(source)
    if verb == "warm_start":
        warm_starting.require_weights(source)
    changed = forking.longer(source, to) if verb == "extend" else config or {}
    before, after = forking.configs(source, changed)
    if verb != "warm_start":
        after.require_forkable(before)
    checkpoint, skipped = services.first_healthy(source, checkpoint_id)
    place, files = services.position(checkpoint, source), changed_code.of(source, checkpoint)
    if verb == "warm_start":
        uses_ledger = KINDS[source.kind].uses_ledger(after.model_dump(mode="json"))
        about = about_ledgers(source, uses_ledger)
        notes = [*_cold(place, files), *(f"{each[0].upper()}{each[1:]}." for each in about)]
    else:
        changed_code.require_accepted(source, checkpoint, after, is_accepted=True)
        uncertain = uncertainty.of(source, checkpoint)
        was_inexact = earlier_resumes.any_inexact(source, checkpoint)
        may_be_exact = not (files or uncertain or was_inexact)
        still_uncertain = uncertainty.under(after, uncertain)
        notes = [
            _begins(source, place),
            *([changed_code.not_exact(files)] if files else []),
            *([uncertainty.sentence(still_uncertain)] if still_uncertain else []),
            *([earlier_resumes.SENTENCE] if was_inexact else []),
            *after.continues(before, may_be_exact=may_be_exact),
        ]
    passed_over = [f"{each}." for each in skipped]
    changes = [Change(*each) for each in differences(before, after)]
    return Preview(checkpoint, place, changes, [*notes, *passed_over], changed_files=files)


def _begins(source: Operation, place: str) -> str:
    return f"A new operation continues from a copy of the checkpoint at {place} of {source.name}."


def _cold(place: str, files: Sequence[str]) -> list[str]:
    named = f"{changed_code.differing(files)}; only the weights are taken."
    return [
        f"A new operation starts at step 0 with the weights of the checkpoint at {place}.",
        *([f"{named[0].upper()}{named[1:]}"] if files else []),
        "Optimizer, schedule, data position and random streams start anew. Weights that are "
        "missing, unexpected or of another shape are named in its first event.",
    ]
