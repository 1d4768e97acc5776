"""Whether the parts of a checkpoint of federated training tell of one run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainops.files.description import StateChecks
from trainops.runtime.job import StateDict

PARTS = ("model", "server", "clients")


def federated_disagreements(step: int, state: StateDict) -> dict[str, str]:
    """Return what does not fit the rest of a server's checkpoint of this step, by place.

    Who takes part is not compared where chance decides: then the state does not say.
    """
    if missing := [name for name in PARTS if name not in state]:
        return dict.fromkeys(missing, "is missing")
    return {
        place: f"is {found}; by the rest of the checkpoint {expected}"
        for place, found, expected in _claims(step, state)
        if found != expected
    }


def _claims(step: int, state: StateDict) -> Iterator[tuple[str, Any, Any]]:
    """Yield a place, what it says, and what it should say."""
    plain: Mapping[str, Any] = state["state"]
    history: Sequence[Mapping[str, Any]] = plain["round_history"]
    epochs, done, epoch = plain["local_epochs"], plain["clients_done"], plain["client_epoch"]
    yield "state.round", plain["round"], len(history)
    yield (
        "state.round_history",
        [line["round"] for line in history],
        [*range(1, len(history) + 1)],
    )
    yield "state.rounds", plain["rounds"], max(plain["rounds"], len(history))
    yield "state.clients_done", done, min(max(done, 0), plain["num_chosen"])
    yield "state.client_epoch", epoch, min(max(epoch, 0), epochs - 1)
    trained = sum(line["clients"] + line.get("dropped", 0) for line in history) + done
    at_once = max(1, plain["num_chosen"])
    possible = [trained * epochs + epoch, trained * epochs + epoch * at_once]
    yield "state", possible[0] if step not in possible else step, step
    yield from _of_clients(state["clients"], plain)
    yield from _of_best(state, plain, history)
    yield "spent", "spent" in state, plain["privacy"] is not None


def _of_clients(
    clients: Mapping[str, Any], plain: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    local_training, epoch = clients["visit"], plain["client_epoch"]
    yield "clients.visit", local_training is not None, epoch > 0
    chosen = plain["chosen"]
    if chosen is None or len(plain["round_history"]) == plain["rounds"]:
        return
    done = plain["clients_done"]
    passed = [each for at, each in enumerate(chosen[:done]) if at not in plain.get("dropped", ())]
    yield "state.num_chosen", plain["num_chosen"], len(chosen)
    yield "state.client", plain["client"], chosen[done] if done < len(chosen) else None
    yield "clients.done", sorted(map(int, clients["done"])), sorted(passed)
    if local_training is not None and "client" in local_training:
        position = (local_training["client"], local_training["epoch"])
        yield "clients.visit", position, (plain["client"], epoch)


def _of_best(
    state: StateDict, plain: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Any, Any]]:
    sign = 1 if plain["mode"] == "min" else -1
    values = [(line[plain["monitor"]], line["round"]) for line in history]
    finite = [(sign * value, number) for value, number in values if not math.isnan(value)]
    best, number = min(finite) if finite else (None, None)
    yield "state.best_metric", plain["best_metric"], None if best is None else sign * best
    yield "state.best_round", plain["best_round"], number
    yield "best_model", "best_model" in state, number is not None
    if "best_model" in state:
        yield "best_model", _shapes(state["best_model"]), _shapes(state["model"])


def _shapes(model: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in model.items()}


CHECKS = StateChecks(
    mark="round_history",
    disagreements=federated_disagreements,
    compared="rounds, clients, local epochs, the best round, and the shapes of both models",
)
