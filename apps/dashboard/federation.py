"""What the page of a federated operation shows: its rounds, its clients, what privacy it spent."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.checkpoints.models import Checkpoint
from apps.operations import outlook
from apps.operations.lifecycle import Reason
from apps.operations.models import ClientPart, Operation, is_part
from apps.operations.privacy import is_kept, spent_by
from trainops.engines.recipes import load
from trainops.engines.spending import Entry

ACCOUNTS = "trainops.engines.federated.account"  # a string: it imports SciPy
MAX_ROUNDS, MAX_CLIENTS, MAX_CLASSES = 60, 40, 12  # that are drawn
DONE, RUNNING, PENDING, FAILED = "done", "running", "pending", "failed"


def context(operation: Operation, newest: Checkpoint | None) -> Mapping[str, Any]:
    """Return what templates/dashboard/operation/federated.html needs."""
    if operation.kind != "federated":
        return {"federation": None}
    if is_part(operation.pk):
        part = ClientPart.objects.filter(pk=operation.pk).select_related("server").first()
        return {"federation": None, "part": part}
    state = newest.state if newest else {}
    return {
        "federation": {
            "strategy": operation.config["server"]["strategy"],
            "mode": operation.config["privacy"]["mode"],
            "rounds": rounds(operation, state),
            "clients": clients(operation, state, newest.step if newest else 0),
            "sent": sent(operation),
            "privacy": privacy(operation),
            "partition": partition(state.get("partition")),
            "hides_sizes": operation.config["privacy"]["mode"] in ("user", "hybrid"),
        }
    }


def rounds(operation: Operation, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rounds, the newest that can be drawn, and how far they are."""
    total, history = operation.config["rounds"], state.get("round_history", [])
    monitor, best = operation.config["monitor"], state.get("best_round")
    first = max(1, min(len(history) + 2, total) - MAX_ROUNDS + 1)
    lines = {line["round"]: line for line in history}
    drawn = [
        {
            "number": number,
            "dropped": lines.get(number, {}).get("dropped", 0),
            "is": DONE if number in lines else _is_of(operation, number == len(history) + 1),
            "value": _number(lines.get(number, {}).get(monitor)),
            "is_best": number == best,
        }
        for number in range(first, min(total, first + MAX_ROUNDS - 1) + 1)
    ]
    return {"drawn": drawn, "done": len(history), "total": total, "monitor": monitor,
            "best": best, "best_value": state.get("best_metric")}  # fmt: skip


def _number(value: Any) -> float | None:
    """Return a number that can be shown; NaN is stored as something else."""
    return value if isinstance(value, int | float) else None


def clients(operation: Operation, state: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
    """Return the grid of this round: for each of its clients, which epochs are done.

    The operation may be some epochs ahead of the checkpoint that the state is of.
    """
    count = state.get("num_chosen", 0)
    if not count:
        return None
    unnamed = [f"{number} of {count}" for number in range(1, count + 1)]
    chosen: Sequence[int | str] = state["chosen"] or unnamed
    epochs = state["local_epochs"]
    is_together = operation.config.get("batched_clients", False)
    at_once = count if is_together else 1
    done = state["clients_done"] * epochs + state["client_epoch"] * at_once
    done += max(0, operation.step - step)
    dropped = state.get("dropped", ())
    means = state.get("clients", {})

    def drawn(place: int, epoch: int) -> str:
        if place in dropped:
            return FAILED
        number = epoch * count + place if is_together else place * epochs + epoch
        is_next = done <= number < done + at_once
        return DONE if number < done else _is_of(operation, is_next)

    rows = [
        {
            "number": client,
            "is_dropped": place in dropped,
            "epochs": [drawn(place, epoch) for epoch in range(epochs)],
            "means": sorted(means.get(str(client), {}).items()),
        }
        for place, client in enumerate(chosen)
    ]  # fmt: skip
    return {
        "round": state["round"] + 1,
        "rows": rows[:MAX_CLIENTS],
        "num_more": max(0, len(rows) - MAX_CLIENTS),
        "num_clients": state["num_clients"],
        "names": sorted({name for each in means.values() for name in each}),
    }


def sent(operation: Operation) -> Mapping[str, Any] | None:
    """Return where the clients of this round train, where they are operations of their own."""
    parts = ClientPart.objects.filter(server=operation).select_related("operation")
    total = parts.count()
    if not total:
        return None
    shown = list(parts.order_by("round", "client")[:MAX_CLIENTS])
    fields = (*outlook.FIELDS, *outlook.PART_FIELDS)
    rows = Operation.objects.filter(pk__in=[part.pk for part in shown]).values(*fields)
    waits = outlook.of_all(rows)
    return {
        "round": shown[0].round,
        "num_more": total - len(shown),
        "rows": [
            {
                "name": part.name,
                "operation": part.operation,
                "state": "DROPPED" if part.operation.reason == Reason.DROPPED
                else part.operation.state,
                "step": part.operation.step,
                "epochs": part.epochs,
                "where": waits[part.pk].message if part.pk in waits else part.operation.worker_id,
            }
            for part in shown
        ],
    }  # fmt: skip


def _is_of(operation: Operation, is_next: bool) -> str:
    if not is_next:
        return PENDING
    return {"RUNNING": RUNNING, "FAILED": FAILED}.get(operation.state, PENDING)


def privacy(operation: Operation) -> Mapping[str, Any] | None:
    """Return what the ledger comes to, against the budget, and in which round that would end."""
    if not is_kept(operation.config):
        return None
    config, entries = operation.config["privacy"], spent_by(operation.pk)
    account = load(f"{ACCOUNTS}:Account")(config["delta"])
    account.add(entries)
    spent, target = account.epsilon, config["target_epsilon"]
    by_client = sorted(account.by_client("sample").items(), key=lambda each: -each[1])
    return {
        "spent": spent,
        "target": target,
        "percent": min(100.0, 100 * spent / target) if target else None,
        "delta": config["delta"],
        "sample": account.of("sample"),
        "user": account.of("user"),
        "is_both": config["mode"] == "hybrid",
        "worst_client": by_client[0][0] if by_client else None,
        "num_entries": len(entries),
        "inherited": sum(not entry.is_own for entry in entries),
        "ends": _ends(operation, account, entries, target) if target else None,
    }


def _ends(
    operation: Operation, account: Any, entries: Sequence[Entry], target: float
) -> Mapping[str, Any] | None:
    """Return the last round that the budget has room for, if all are as the last whole one was."""
    newest = max((entry.round for entry in entries), default=0)
    whole = newest if operation.is_finished else newest - 1
    each = [entry for entry in entries if entry.round == whole and entry.is_own]
    if not each or operation.is_finished:
        return None
    done = account.__class__(account.delta)
    done.add(entry for entry in entries if entry.round <= whole)
    most = operation.config["rounds"] - whole
    left = load(f"{ACCOUNTS}:rounds_left")(done, each, target, most)
    return {"round": whole + left, "is_enough": left >= most}


def partition(told: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a bar for each client, as long as its examples are many, cut by their classes."""
    if not told:
        return None
    sizes, names = told["examples"], told.get("classes", [])
    counts = told.get("counts") or [[size] for size in sizes]
    largest = max(sizes)
    bars = []
    for number, (size, of_class) in enumerate(zip(sizes, counts, strict=True)):
        start, pieces = 0.0, []
        for label, count in enumerate(of_class):
            width = 100 * count / largest
            if count:
                name = names[label] if label < len(names) else ""
                pieces.append({"x": start, "width": width, "colour": label % MAX_CLASSES,
                               "count": count, "name": name})  # fmt: skip
            start += width
        bars.append({"client": number, "size": size, "pieces": pieces})
    return {
        "bars": bars[:MAX_CLIENTS],
        "num_more": max(0, len(bars) - MAX_CLIENTS),
        "classes": [
            {"name": name, "colour": number % MAX_CLASSES}
            for number, name in enumerate(names[:MAX_CLASSES])
        ],
        "smallest": min(sizes),
        "largest": largest,
    }
