"""A worker's runtime in a process of its own, that a test lets die at a numbered point of a save.

It reads commands from its standard input, a line of JSON each, and answers each with one. The
product has no hooks for this: what it calls at such a point is wrapped from outside.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

SAVE = 3  # the one that a process dies in: retention lets one go for it
TOY = {
    "recipe": "toy", "batch_size": 8, "epochs": 200, "log_every_steps": 2, "seed": 7,
    "checkpoint": {"every_steps": 2, "keep_last": 1, "keep_best": 0},
    "restart": {"policy": "on_failure"},
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """Before or after a call of `module:owner.name`, or one of those with `word` in an argument.

    Counted are the calls of `counted`, where that is another.
    """

    call: str
    is_after: bool = False
    word: str = ""
    counted: str = ""


COMMIT = "apps.operations.attempts.report_writer:ReportWriter.commit"
UPLOAD = "apps.checkpoints.remote:Remote.upload"
PUT = "apps.checkpoints.s3:S3Objects.put"
SUPERVISOR = {  # in the order of a save; the first eight with any storage
    "heard": Point("apps.operations.attempts.committer:CheckpointCommitter.received"),
    "commit-to-begin": Point(COMMIT),
    "row-written": Point("apps.checkpoints.services:commit", is_after=True),
    "committed": Point("apps.operations.attempts.report_writer:ReportWriter._let_go"),
    "rows-deleted": Point("apps.checkpoints.services:remove_files", counted=COMMIT),
    "directory-removed": Point("apps.checkpoints.storage:remove", is_after=True, counted=COMMIT),
    "retained": Point("apps.checkpoints.services:retain", is_after=True),
    "answered": Point(
        "apps.operations.attempts.supervisor:Supervision._send", True, "Committed", counted=COMMIT
    ),
}
SUPERVISOR_WITH_BUCKET = {
    "upload-to-begin": Point(UPLOAD),
    "object-uploaded": Point(PUT, is_after=True, counted=UPLOAD),
    "manifest-to-upload": Point(PUT, word="manifest.json", counted=UPLOAD),
    "uploaded": Point(UPLOAD, is_after=True),
    "objects-to-remove": Point("apps.checkpoints.remote:Remote.remove", counted=COMMIT),
    "object-removed": Point("apps.checkpoints.s3:S3Objects.remove", True, counted=COMMIT),
}


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    runtime = _runtime()
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        answer = COMMANDS[request.pop("do")](runtime, **request)
        _say(answer)
    runtime.forkserver.close()


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _runtime() -> Any:
    from apps.operations.attempts import work
    from apps.operations.attempts.children import ForkServer
    from apps.operations.scheduling.slots import Slots
    from tests.waiting import wait_until

    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.slots, runtime.forkserver = (
        "victim",
        Slots(count=1),
        ForkServer(),
    )
    runtime.forkserver.open()
    wait_until(lambda: runtime.forkserver.is_ready)
    return runtime


def submit(runtime: Any) -> str:
    from apps.operations.requests import services

    return services.submit(kind="training", config=TOY, owner=None).pk


def attempt(runtime: Any, *, operation_id: str, point: str = "", child_point: str = "") -> bool:
    """Run one attempt, in which this process, or its child, dies."""
    from apps.operations.attempts import work
    from apps.operations.models import Operation

    Operation.objects.filter(pk=operation_id).update(not_before=None)
    if point:
        _arm((SUPERVISOR | SUPERVISOR_WITH_BUCKET)[point])
    with _child_dies_at(child_point):
        return work._work_once(runtime)


def lose(runtime: Any, *, operation_id: str) -> str:
    """Do what a sweep does once the lease of a dead worker has run out; return the state."""
    from apps.operations.lifecycle import Reason
    from apps.operations.models import Attempt
    from apps.operations.requests import services
    from apps.operations.scheduling import claims

    operation = services.get(operation_id)
    if operation.state == "RUNNING":
        claims.restart_or_fail(
            operation, Reason.WORKER_LOST, actor="test", note="", outcome=Attempt.Outcome.LOST
        )
    return services.get(operation_id).state


def look(runtime: Any, *, operation_id: str) -> dict[str, Any]:
    """Return what is known of an operation; every byte that its rows point to is read."""
    from apps.checkpoints import integrity, sharing, storage
    from apps.checkpoints import services as checkpoints
    from apps.checkpoints.removals import REMOVALS
    from apps.operations.requests import services
    from tests.operations.test_supervisor import curve

    REMOVALS.join()
    operation = services.get(operation_id)
    rows = checkpoints.to_resume_from(operation_id)
    return {
        "state": operation.state,
        "problems": [str(problem) for row in rows if (problem := integrity.check(row))],
        "steps": [row.step for row in rows],
        "objects": [
            *sharing.files(operation.checkpoints.all()),
            *(storage.manifest_location(row.artifacts_path) for row in rows),
        ],
        "paths": [row.artifacts_path for row in rows],
        "num_rows": operation.checkpoints.count(),
        "from_steps": list(
            operation.attempts.order_by("number").values_list("from_step", flat=True)
        ),
        "files": {
            each["name"]: each["blake3"]
            for row in rows
            for each in row.manifest
            if row.type == "final"
        },
        "curve": [list(point) for point in curve(operation)],
    }


def sweep(runtime: Any) -> list[str]:
    """Remove what no row owns, however young; return the directories that are left here."""
    from django.conf import settings

    from apps.checkpoints import cleaning

    cleaning.sweep_unowned(empty_trash=True)
    root = settings.CHECKPOINT_ROOT
    return [str(path.relative_to(root)) for path in root.glob("op_*/*")]


COMMANDS: dict[str, Callable[..., Any]] = {
    "submit": submit, "attempt": attempt, "lose": lose, "look": look, "sweep": sweep,
}  # fmt: skip


@contextmanager
def _child_dies_at(moment: str) -> Iterator[None]:
    """Name the moment in the environment that the child is given."""
    from tests.engines.moments import DIES_AT
    from trainops.process.protocol import Start
    from trainops.process.wire import Wire

    send = Wire.send

    def send_with_moment(wire: Wire[Any], message: Any) -> None:
        if isinstance(message, Start) and moment:
            environment = {**message.environment, DIES_AT: f"{moment} {SAVE}"}
            message = replace(message, environment=environment)
        send(wire, message)

    Wire.send = send_with_moment
    try:
        yield
    finally:
        Wire.send = send


def _arm(point: Point) -> None:
    numbers = {"calls": 0}

    def count() -> None:
        numbers["calls"] += 1

    def die(arguments: tuple[Any, ...]) -> None:
        is_the_call = not point.word or any(point.word in str(each) for each in arguments)
        if is_the_call and numbers["calls"] == SAVE:
            os.kill(os.getpid(), signal.SIGKILL)

    if point.counted:
        _wrap(point.counted, before=lambda _: count())
    else:
        _wrap(point.call, before=lambda _: count())
    _wrap(point.call, after=die) if point.is_after else _wrap(point.call, before=die)


def _wrap(
    call: str,
    before: Callable[[tuple[Any, ...]], None] = lambda _: None,
    after: Callable[[tuple[Any, ...]], None] = lambda _: None,
) -> None:
    from importlib import import_module

    module, _, place = call.partition(":")
    *owners, name = place.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    function = getattr(owner, name)

    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        before((*arguments, *named.values()))
        result = function(*arguments, **named)
        after((*arguments, *named.values()))
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
