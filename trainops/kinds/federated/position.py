"""Where a checkpoint of federated training stands: of a server, or of one client. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position, completed

SUMMARY = (
    "round", "rounds", "clients_done", "num_chosen", "client_epoch", "best_metric", "best_round",
)  # fmt: skip
ALSO_READ = ("client_epochs",)
BEST = ("best_metric",)


def position(state: Mapping[str, Any], step: int) -> Position:
    """Return the completed rounds, and how far the round in progress is."""
    rounds = state.get("round")
    if rounds is None:
        return Position({}, completed("client epoch", step))
    if state.get("client_epochs") is not None:  # one client's part of a round
        epoch = state.get("client_epoch", step)
        return Position({"round": rounds, "client_epoch": epoch}, completed("client epoch", epoch))
    done, epoch = state.get("clients_done") or 0, state.get("client_epoch") or 0
    counts = {"round": rounds, "clients_done": done, "client_epoch": epoch}
    group = rounds + 1  # the round in progress
    text = completed("round", rounds)
    if not (done or epoch):
        return Position(counts, text, group)
    within = f"{done} clients done, epoch {epoch} of the next" if epoch else f"{done} clients done"
    return Position(counts, f"{text} and {within}", group)
