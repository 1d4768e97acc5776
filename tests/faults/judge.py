"""What must be true of an operation after a storm, whatever happened in it.

I1  the attempts of an operation never compute at the same time (each step leaves its process's
    number in a file: a process that another has followed is never seen again)
I2  commits are monotonic in attempt: none by a superseded one (every checkpoint is kept)
I3  after quiet everything is terminal; no lease, no slot, no attempt is left open
I4  COMPLETED equals the undisturbed run: every file of the result, the whole metric curve
I5  no process, no file, no row of an ended attempt is left
I6  every attempt began at the newest checkpoint there was: no committed work was done twice
I7  every event follows from the one before, and every attempt ended for a reason that a fault
    or a person explains
I8  every operation offers an action, whatever state it is in
I9  a restore brings back every operation that there was at the backup, with its results, and none
    else; what has not ended by then comes to its end as I1 to I8 demand
I10 a rolling upgrade leaves no program of the version before
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from tests.journey.stack import Stack

STATES = {"PENDING", "RUNNING", "RESUMING", "COMPLETED", "FAILED", "CANCELLED"}
FEW, ALL = 100, 500
FEW_SHOWN = 5  # points of a curve


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two runs of one config must have in common."""

    files: dict[str, str]  # digests of the result
    curve: list[tuple[str, int, float]]


def outcome(stack: Stack, operation_id: str) -> Outcome:
    return Outcome(stack.artifacts(operation_id), stack.curve(operation_id))


def problems(
    stack: Stack, operation_id: str, undisturbed: Outcome, trace: Path, explained: Collection[str]
) -> Iterator[str]:
    """Yield what is wrong with an operation that has come to its end."""
    yield from overlaps(operation_id, trace)
    operation = stack.get(f"operations/{operation_id}")
    yield from stuck(operation)
    saved = stack.get("checkpoints", operation_id=operation_id, limit=ALL)[::-1]
    if operation["state"] == "CANCELLED" and not saved:
        return  # before its first checkpoint: nothing is there to resume from
    if operation["state"] != "COMPLETED":
        yield f"I3 {operation_id} is {operation['state']}: {operation['error']}"
        return
    yield from _differences(stack, operation_id, undisturbed)
    attempts = stack.get(f"operations/{operation_id}/attempts", limit=FEW)[::-1]
    yield from _misplaced(operation_id, attempts, saved)
    yield from _unexplained(operation_id, attempts, explained)
    events = stack.get(f"operations/{operation_id}/events", limit=ALL)[::-1]
    yield from _gaps(operation_id, events)


def stuck(operation: dict[str, Any]) -> Iterator[str]:
    if not operation["allowed_actions"]:
        yield f"I8 {operation['operation_id']} is {operation['status']} and offers no action"


def overlaps(operation_id: str, trace: Path) -> Iterator[str]:
    if not trace.exists():
        return  # it never ran
    processes = [process for process, _ in groupby(trace.read_text().split())]
    if len(processes) != len(set(processes)):
        yield f"I1 {operation_id}: its attempts computed at the same time: {processes}"


def _differences(stack: Stack, operation_id: str, undisturbed: Outcome) -> Iterator[str]:
    done = outcome(stack, operation_id)
    if done.files != undisturbed.files:
        yield f"I4 {operation_id}: its result differs from the undisturbed one"
    found, expected = Counter(done.curve), Counter(undisturbed.curve)
    if found != expected:
        missing, odd = sorted(expected - found), sorted(found - expected)  # twice counts, too
        yield (
            f"I4 {operation_id}: its metric curve differs from the undisturbed one: "
            f"{len(missing)} points are missing, as {missing[:FEW_SHOWN]}; "
            f"{len(odd)} are not expected, as {odd[:FEW_SHOWN]}"
        )


def _misplaced(
    operation_id: str, attempts: list[dict[str, Any]], saved: list[dict[str, Any]]
) -> Iterator[str]:
    numbers = [each["attempt"] for each in saved]
    if numbers != sorted(numbers):
        yield f"I2 {operation_id}: a superseded attempt committed: {numbers}"
    if len(attempts) < FEW and [each["number"] for each in attempts] != list(
        range(1, len(attempts) + 1)
    ):
        yield f"I7 {operation_id}: attempts are missing: {[each['number'] for each in attempts]}"
    for attempt in attempts:
        before = [each for each in saved if _staged_by(each) < attempt["number"]]
        newest = max(((each["attempt"], each["step"]) for each in before), default=(0, 0))[1]
        if attempt["from_step"] is not None and attempt["from_step"] != newest:
            yield (
                f"I6 {operation_id}: attempt {attempt['number']} began at {attempt['from_step']}, "
                f"the newest checkpoint was at {newest}"
            )


def _staged_by(checkpoint: dict[str, Any]) -> int:
    """Return the attempt that wrote the files; another one may have adopted them."""
    found = re.search(r"-a(\d+)-s\d+-", checkpoint["checkpoint_id"])
    assert found, checkpoint
    return int(found[1])


def _unexplained(
    operation_id: str, attempts: list[dict[str, Any]], explained: Collection[str]
) -> Iterator[str]:
    for attempt in attempts:
        if attempt["ended_at"] is None:
            yield f"I5 {operation_id}: attempt {attempt['number']} is still open"
        elif attempt["outcome"] != "completed" and attempt["reason"] not in explained:
            yield (
                f"I7 {operation_id}: nothing explains that attempt {attempt['number']} ended with "
                f"{attempt['outcome']} {attempt['reason']}: {attempt['note']}"
            )


def _gaps(operation_id: str, events: list[dict[str, Any]]) -> Iterator[str]:
    moves = [event for event in events if event["what"] in STATES]
    for before, after in pairwise(moves):
        if after["from_state"] != before["what"]:
            yield f"I7 {operation_id}: {before['what']} is followed by a move from {after}"
    for event in events:
        if not event["actor"]:
            yield f"I7 {operation_id}: nobody is said to have done {event}"


def not_restored(
    stack: Stack, finished: Mapping[str, Outcome], unfinished: Collection[str]
) -> Iterator[str]:
    """Yield how what was restored differs from what there was at the backup."""
    found = {each["id"] for each in stack.get("operations", limit=ALL)}
    backed_up = {*finished, *unfinished}
    if missing := sorted(backed_up - found):
        yield f"I9 of the backup are missing: {missing}"
    if odd := sorted(found - backed_up):
        yield f"I9 were not in the backup: {odd}"
    for operation_id in sorted(finished.keys() & found):
        state = stack.get(f"operations/{operation_id}")["state"]
        if state != "COMPLETED":
            yield f"I9 {operation_id} is {state}, and was COMPLETED in the backup"
        elif outcome(stack, operation_id) != finished[operation_id]:
            yield f"I9 {operation_id}: its result is not that of the backup"


def leftovers(stack: Stack) -> Iterator[str]:
    """Yield what is left of attempts though none runs any more."""
    for worker in stack.get("workers"):
        if worker["num_running"]:
            yield f"I5 {worker['worker_id']} still says that it runs {worker['num_running']}"
    running = stack.get("operations", state="RUNNING")
    if running:
        yield f"I3 still RUNNING: {[each['id'] for each in running]}"
    rows = {
        f"{each['operation_id']}/{each['checkpoint_id'].split('-', 1)[1]}"
        for each in stack.get("checkpoints", limit=ALL)
    }
    root = stack.data_dir / "checkpoints"
    directories = {f"{each.parent.name}/{each.name}" for each in root.glob("op_*/*")}
    if unowned := sorted(directories - rows)[:5]:
        yield f"I5 files that no row owns: {unowned}"
    if missing := sorted(rows - directories)[:5]:
        yield f"I5 rows without files: {missing}"
