"""The grid of a round's clients: which local epochs each has done, and where it is.

In one process the newest checkpoint and the operation's step say so. Where clients are operations
of their own, their rows do: several train at a time, and none waits for another.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, OuterRef, Subquery
from django.utils import timezone

from apps.operations.lifecycle import WAITING, Reason, State, reason_label
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import QueueStatus
from apps.operations.scheduling.queue_status import WaitingRow
from trainops.media.names import CLIENTS

MAX_CLIENTS, MAX_EPOCHS = 40, 60  # that are drawn
DONE, RUNNING, PENDING, FAILED = "done", "running", "pending", "failed"
Numbers = Mapping[int, int | str]  # what clients are called, by their place in the round

# How a client is → the colour of Tabler, where it is an operation of its own.
COLOURS = {
    "not sent": "secondary",
    "waiting": "secondary",
    "running": "blue",
    "done": "green",
    "stopped": "orange",
    "dropped": "orange",
    "failed": "red",
}


class ClientRow(WaitingRow):
    """A client of a round that is an operation now."""

    step: int
    lease_expires_at: datetime | None
    ran_on: str | None
    client: str
    message: str | None


def grid(
    operation: Operation, state: Mapping[str, Any], step: int, called: Sequence[str] = ()
) -> Mapping[str, Any] | None:
    """Return the clients of the round that a checkpoint's state is of; None if none is shown.

    After the last round they are all with recorded values. The operation may be some epochs
    ahead of the checkpoint, which is of `step`. `called` are the names of all clients, where they
    have some.
    """
    is_over = not state.get("num_chosen", 0)
    state = _at_the_end(state) if is_over else state
    count = state["num_chosen"]
    if not count:
        return None
    is_distributed = operation.config.get("placement") == "distributed"
    ahead = max(0, operation.step - step)
    draw = _elsewhere if is_distributed else _here
    passed = _passed(operation, state) + ahead
    is_in_turn = not (is_over or operation.config.get("batched_clients", False))
    rows = draw(operation, state, passed, _drawn(state, passed if is_in_turn else 0))
    means, names = state.get("clients", {}), dict(enumerate(called))
    figures, shares = sorted({figure for each in means.values() for figure in each}), _shares(state)
    return {
        "round": None if is_over else state["round"] + 1,
        "rows": [
            row
            | {"means": [means.get(str(row["number"]), {}).get(figure) for figure in figures]}
            | {"curves": f"{CLIENTS}{row['number']}/" if str(row["number"]) in means else ""}
            | {"name": names.get(row["number"], ""), "share": shares.get(row["number"])}
            for row in rows
        ],
        "num_more": max(0, count - MAX_CLIENTS),
        "num_clients": state["num_clients"],
        "num_epochs": state["local_epochs"],
        "figures": figures,
        "has_shares": bool(shares),
        "is_distributed": is_distributed,
    }


def _at_the_end(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state as if all clients with recorded values had just done their round."""
    clients = sorted(int(client) for client in state.get("clients", {}))
    here = {
        "num_chosen": len(clients),
        "chosen": clients,
        "clients_done": len(clients),
        "client_epoch": 0,
    }
    return {**state, **here, "dropped": (), "round": state.get("round", 1) - 1}


def _shares(state: Mapping[str, Any]) -> dict[int, float]:
    """Return the percentage of the round's examples that each client has, where recorded."""
    sizes, chosen = (state.get("partition") or {}).get("examples"), state["chosen"]
    if not sizes or not chosen:
        return {}
    dropped = state.get("dropped", ())
    taking_part = [client for place, client in enumerate(chosen) if place not in dropped]
    total = sum(sizes[client] for client in taking_part)
    return {client: 100 * sizes[client] / total for client in taking_part}


def _passed(operation: Operation, state: Mapping[str, Any]) -> int:
    """Return the client epochs of the round that the state has behind it."""
    at_once = state["num_chosen"] if operation.config.get("batched_clients", False) else 1
    passed: int = state["clients_done"] * state["local_epochs"] + state["client_epoch"] * at_once
    return passed


def _drawn(state: Mapping[str, Any], passed: int) -> Numbers:
    """Return by place what to call each client that is drawn; where who takes part is secret, that.

    Where they are too many, they begin with the one that is not done after N epochs.
    """
    count = state["num_chosen"]
    first = max(0, min(passed // state["local_epochs"], count - MAX_CLIENTS))
    places = range(first, min(count, first + MAX_CLIENTS))
    chosen = state["chosen"]
    return {place: chosen[place] if chosen else f"{place + 1} of {count}" for place in places}


def _here(
    operation: Operation, state: Mapping[str, Any], passed: int, numbers: Numbers
) -> list[dict[str, Any]]:
    count, epochs = state["num_chosen"], state["local_epochs"]
    is_together = operation.config.get("batched_clients", False)
    at_once = count if is_together else 1
    dropped = state.get("dropped", ())
    now = {State.RUNNING: RUNNING, State.FAILED: FAILED}.get(State(operation.state), PENDING)

    def drawn(place: int, epoch: int) -> str:
        if place in dropped:
            return FAILED
        number = epoch * count + place if is_together else place * epochs + epoch
        if number < passed:
            return DONE
        return now if number < passed + at_once else PENDING

    return [
        {"number": number, "is_dropped": place in dropped}
        | _cells([drawn(place, epoch) for epoch in range(epochs)])
        for place, number in numbers.items()
    ]


def _elsewhere(
    operation: Operation, state: Mapping[str, Any], passed: int, numbers: Numbers
) -> list[dict[str, Any]]:
    epochs, dropped = state["local_epochs"], state.get("dropped", ())
    names = {
        place: f"client {number}" if state["chosen"] else f"client at place {place + 1}"
        for place, number in numbers.items()
    }  # as the server calls them
    sent = _sent(operation, state["round"] + 1, list(names.values()))
    waits = queue_status.of_all(sent.values())
    rows = []
    for place, number in numbers.items():
        row = sent.get(names[place])
        taken = max(0, min(epochs, passed - place * epochs))
        how = "dropped" if place in dropped else _how(row, taken, epochs)
        num_done = 0 if how == "dropped" else min(row["step"], epochs) if row else taken
        rows.append(
            {
                "number": number,
                "operation_id": row["id"] if row else "",
                "is": how,
                "colour": COLOURS[how],
                "where": _where(how, row, waits),
            }
            | _cells([DONE] * num_done + _left(how, epochs - num_done))
        )
    return rows


def _how(row: ClientRow | None, taken: int, epochs: int) -> str:
    """Return how a client is; without a row by the epochs that the server has taken over."""
    if row is None:
        return "done" if taken == epochs else "stopped" if taken else "not sent"
    return "dropped" if row["reason"] == Reason.DROPPED else HOW[State(row["state"])]


def _left(how: str, count: int) -> list[str]:
    """Return what is drawn of the epochs that a client has not done."""
    if how == "dropped":
        return [FAILED] * count
    first = {"running": RUNNING, "failed": FAILED}.get(how, PENDING)
    return [first, *[PENDING] * (count - 1)][:count]


HOW = {
    **dict.fromkeys(WAITING, "waiting"),
    State.RUNNING: "running",
    State.COMPLETED: "done",
    State.FAILED: "failed",
    State.CANCELLED: "stopped",
}


def _sent(operation: Operation, number: int, names: Sequence[str]) -> dict[str, ClientRow]:
    """Return by name those clients of a round that are operations now: one query."""
    attempts = Attempt.objects.filter(operation=OuterRef("pk"), number=OuterRef("attempt"))
    parts = Operation.objects.filter(
        subtask__parent=operation, subtask__group=number, subtask__name__in=names
    )
    rows = parts.annotate(ran_on=Subquery(attempts.values("worker_id")[:1])).values(
        *queue_status.FIELDS, "step", "lease_expires_at", "ran_on",
        client=F("subtask__name"), message=F("error__message"),
    )  # fmt: skip
    return {row["client"]: row for row in rows}


def _where(how: str, row: ClientRow | None, waits: Mapping[str, QueueStatus]) -> str:
    """Return the worker, or why there is none."""
    if how == "dropped":
        return "the round proceeded without it"
    if row is None:
        return ""
    if row["id"] in waits:
        return waits[row["id"]].message
    if how == "failed":
        return row["message"] or reason_label(row["reason"])
    if how == "stopped":
        return "resumes with its parent operation"
    until = row["lease_expires_at"]
    is_silent = how == "running" and until is not None and until < timezone.now()
    return f"{row['ran_on'] or ''}{' (not responding)' if is_silent else ''}"


def _cells(epochs: list[str]) -> dict[str, Any]:
    """Return what is drawn of a client's epochs: a cell for each, unless they are too many."""
    return {"epochs": epochs if len(epochs) <= MAX_EPOCHS else [], "num_done": epochs.count(DONE)}
