"""What the page of a federated operation shows: its rounds, its clients, what privacy it spent."""

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from django.core.cache import cache

from apps.checkpoints.models import Checkpoint
from apps.datasets.models import Dataset
from apps.ledger.errors import LedgerBroken
from apps.ledger.services import account_of, entries_of
from apps.operations.models import Event, Operation
from trainops.kinds.federated.releases import LEVELS, Release
from trainops.kinds.federated.web.client_grid import (
    DONE,
    FAILED,
    MAX_CLIENTS,
    PENDING,
    RUNNING,
    grid,
)
from trainops.lazy import load
from trainops.runtime import lossless

ACCOUNTS = "trainops.kinds.federated.account"  # a string: it imports SciPy
MAX_ROUNDS, MAX_CLASSES = 60, 12  # that are drawn
SHARE_OF_TIME = 0.05  # that a page may spend on reading a ledger


def panel(subject: Any) -> Mapping[str, Any] | None:
    return None if subject.subtask else context(subject.operation, subject.newest)


def files(subject: Any) -> Mapping[str, Any] | None:
    """Return the newest checkpoint, which is offered as files of version 2.0."""
    newest = subject.newest
    if newest is None or subject.subtask:
        return None
    has_best = any(each["name"] == "best_model.pt" for each in newest.manifest)
    return {"newest": newest, "position": subject.position(newest), "has_best": has_best}


def context(operation: Operation, newest: Checkpoint | None) -> Mapping[str, Any]:
    """Return the context of the template federated.html."""
    state = lossless.decode(newest.state) if newest else {}
    names = names_of(operation, state.get("partition"))
    return {
        "federation": {
            "strategy": operation.config["server"]["strategy"],
            "mode": operation.config["privacy"]["mode"],
            "rounds": rounds(operation, state),
            "differs": state.get("differs", []),
            "clients": grid(operation, state, newest.step if newest else 0, names),
            "privacy": _privacy_in_time(operation, state, newest.step if newest else 0),
            "has_given_weights": _has_given_weights(operation),
            "partition": partition(state.get("partition"), names),
            "hides_sizes": operation.config["privacy"]["mode"] in ("user", "hybrid"),
        }
    }


def _has_given_weights(operation: Operation) -> bool:
    """Whether the weights come from an operation whose spending is not in this ledger."""
    if not operation.uses_ledger:
        return False
    owners = [*account_of(operation.pk).ancestors, operation.pk]
    return Event.objects.filter(operation_id__in=owners, what="WARM_STARTED").exists()


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
    """Return a number that can be shown, if it is one."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _is_of(operation: Operation, is_next: bool) -> str:
    if not is_next:
        return PENDING
    return {"RUNNING": RUNNING, "FAILED": FAILED}.get(operation.state, PENDING)


def _privacy_in_time(
    operation: Operation, state: Mapping[str, Any], step: int
) -> Mapping[str, Any] | None:
    """Return `privacy`, which goes through the whole ledger: what took long is kept for longer.

    So viewers of a run of a million releases do not each keep a process busy with that.
    Of a ledger that was changed from outside there is a problem, and no figure.
    """
    key = f"privacy:{operation.pk}:{operation.state}:{step}"
    figures: Mapping[str, Any] | None = cache.get(key)
    if figures is None:
        began = perf_counter()
        try:
            figures = privacy(operation, state, step)
        except LedgerBroken as error:
            return {"problem": str(error)}
        cache.set(key, figures, int((perf_counter() - began) / SHARE_OF_TIME))
    return figures


def privacy(operation: Operation, state: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
    """Return what the ledger comes to, against the budget, and in which round that would end.

    The tighter accountant needs more than this process loads: its figures are those of the result,
    or of the newest checkpoint's state, of this step. What is written down beyond that is shown as
    the other accountant's figure of all, which is never less.
    """
    if not operation.uses_ledger:
        return None
    config = operation.config["privacy"]
    recorded = entries_of(operation.pk, operation.ledger_fields)
    entries = [Release.from_entry(each) for each in recorded]
    account = load(f"{ACCOUNTS}:Account")(config["delta"])
    account.add(entries)
    target, is_tight = config["target_epsilon"], config["accountant"] == "prv"
    figures: dict[str, Any] = {f"{level}_epsilon": account.of(level) for level in LEVELS}
    figures["epsilon"] = account.epsilon
    at_most = None
    if is_tight:
        final = lossless.decode(operation.result or {}).get("privacy")
        figures |= final or state.get("privacy") or {}
        is_behind = not final and any(entry.is_own and entry.step > step for entry in entries)
        at_most = account.epsilon if is_behind else None
    spent, by = figures["epsilon"], figures.get("figures_by")
    by_client = sorted(account.by_client("sample").items(), key=lambda each: -each[1])
    releases = [entry for entry in entries if entry.is_release]
    return {
        "spent": spent,
        "target": target,
        "percent": min(100.0, 100 * spent / target) if target else None,
        "delta": config["delta"],
        "sample": figures["sample_epsilon"],
        "user": figures["user_epsilon"],
        "is_tight": is_tight,
        "is_by_prv": "prv" in by if isinstance(by, list) else True,
        "at_most": at_most,
        "is_both": config["mode"] == "hybrid",
        "worst_client": by_client[0][0] if by_client and config["mode"] == "sample" else None,
        "num_entries": len(releases),
        "inherited": sum(not entry.is_own for entry in releases),
        "ends": None if is_tight or not target else _ends(operation, state, account, entries),
    }


def _ends(
    operation: Operation, state: Mapping[str, Any], account: Any, entries: Sequence[Release]
) -> Mapping[str, Any] | None:
    """Return the last round that the budget has room for, if all are as those before.

    Where a round has some of the clients only, each continues to be in as many as it may expect; in
    hybrid all count as in each, and one round of those that had clients stands for all. The newest
    entry says where the run is: after a resume with other noise older ones are ahead of it, and
    count as spent. What was imported is of no round.
    """
    own = [entry for entry in entries if entry.is_own and entry.round]
    if not own or operation.is_finished:
        return None
    current = own[-1].round
    newest = {(entry.level, entry.client, entry.round, entry.step): entry for entry in own}
    before = (entry for entry in newest.values() if entry.round < current)
    whole = sorted(before, key=lambda entry: entry.round)
    if not whole:
        return None
    config = operation.config
    last = {entry.client: entry.round for entry in whole}  # the newest of each, where it was in
    share = min(1.0, max(config["fraction"], config["min_clients"] / state.get("num_clients", 1)))
    each = [entry for entry in whole if entry.round == last[entry.client]]
    if config["privacy"]["mode"] == "hybrid":
        newest_of = {entry.level: entry.round for entry in whole}
        each, share = [entry for entry in whole if entry.round == newest_of[entry.level]], 1.0
    under_way = {entry.noise for entry in newest.values() if entry.round == current}
    done = account.__class__(account.delta)
    done.add(entry for entry in entries if entry.noise not in under_way)
    most = config["rounds"] - current + 1
    target = config["privacy"]["target_epsilon"]
    left = load(f"{ACCOUNTS}:rounds_left")(done, each, target, most, share)
    return {"round": current - 1 + left, "is_enough": left >= most}


def names_of(operation: Operation, described: Mapping[str, Any] | None) -> Sequence[str]:
    """Return what clients of a column or of files are called, by their number; else nothing."""
    names: Sequence[str] = (described or {}).get("names", [])
    if operation.config["partition"]["by"] != "file":
        return names
    known = dict(Dataset.objects.filter(pk__in=names).values_list("pk", "name"))
    return [known.get(each, each) for each in names]


def partition(
    described: Mapping[str, Any] | None, called: Sequence[str]
) -> Mapping[str, Any] | None:
    """Return a bar for each client, as long as its examples are many, cut by their classes."""
    if not described:
        return None
    sizes, names = described["examples"], described.get("classes", [])
    counts = described.get("counts") or [[size] for size in sizes]
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
        called_so = called[number] if number < len(called) else ""
        bars.append({"client": number, "name": called_so, "size": size, "pieces": pieces})
    return {
        "bars": bars[:MAX_CLIENTS],
        "is_named": bool(called),
        "num_more": max(0, len(bars) - MAX_CLIENTS),
        "classes": [
            {"name": name, "colour": number % MAX_CLASSES}
            for number, name in enumerate(names[:MAX_CLASSES])
        ],
        "smallest": min(sizes),
        "largest": largest,
    }
