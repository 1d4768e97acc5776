"""Why no resume of an operation is certain to be exact, as its newest attempt said at its start."""

from collections.abc import Iterable, Mapping

from apps.checkpoints import environments
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Attempt, Operation
from trainops.runtime import receipt
from trainops.runtime.config import OperationConfig
from trainops.runtime.receipt import MATTERS


def of(operation: Operation, start: Checkpoint) -> dict[str, str]:
    """Return why, by part; empty where all is certain, or nothing is known.

    The environment of the checkpoint counts, too: receipts of earlier versions say nothing.
    """
    said = said_by(Attempt.objects.filter(operation=operation).order_by("-number"))
    environment = environments.of([start])[start.pk]
    if isinstance(environment, str) or "deterministic" not in environment:
        return said
    return receipt.uncertain(environment) | said


def said_by(attempts: Iterable[Attempt]) -> dict[str, str]:
    """Return what the newest of these attempts that has started said; the newest is first."""
    receipts = (each.receipt for each in attempts)
    newest = next((each for each in receipts if each and "checkpoint" in each), None)
    found = newest.get("uncertain", {}) if newest else {}
    return {str(part): str(why) for part, why in found.items()}


def under(config: OperationConfig, found: Mapping[str, str]) -> dict[str, str]:
    """Return what of it holds for a fork with this config."""
    settled = () if may_vary(config) else (MATTERS["deterministic"],)
    return {part: why for part, why in found.items() if part not in settled}


def may_vary(config: OperationConfig) -> bool:
    """Return whether sums may differ each time, on a GPU at least."""
    return not config.deterministic and config.device != "cpu"


def sentence(found: Mapping[str, str]) -> str:
    """Return what a preview says of it."""
    return f"It may not be exact: {listed(found)}."


def listed(found: Mapping[str, str]) -> str:
    return "; ".join(f"{part}: {why}" for part, why in found.items())
