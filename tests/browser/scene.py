"""An installation with the operations of a week, for screenshots: the same every time."""

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from apps.operations.models import Attempt, MetricPoint, Operation
from apps.operations.requests import services
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.pages import making
from trainops.recipes import recipes

STEPS_PER_EPOCH, EPOCHS = 23, 60
STEPS = STEPS_PER_EPOCH * EPOCHS
RESUMED_AT = 25  # epochs that the first attempt of a resumed training keeps, of the 28 it computed
WORKER = "gpu-1-7f3a"


@dataclass(frozen=True)
class Scene:
    running: Operation
    trained: list[Operation]


def build(owner: User) -> Scene:
    Worker.objects.create(
        worker_id=WORKER, kinds=["training", "rl", "backtest", "federated"], slots=4, num_running=3,
        host="gpu-1",
    )  # fmt: skip
    Worker.objects.create(worker_id="cpu-1-20bc", kinds=["training"], slots=2, host="cpu-1")
    for name, fields in {
        "fed-digits-dp": {"kind": "federated", "place": "12 of 60 rounds", "step": 12, "total": 60},
        "meadow-dqn": {"kind": "rl", "place": "step 61,440", "step": 61_440, "total": 100_000},
    }.items():
        _other(owner, name, **fields)
    broken = _training(owner, "digits-broken", learning_rate=0.9)
    error = {"code": "JOB_ERROR", "message": "loss is not finite"}
    _row(broken, "FAILED", 4 * STEPS_PER_EPOCH, days=3, reason="JOB_ERROR", error=error)
    trained = []
    for number, rate in enumerate((0.0005, 0.002, 0.008)):
        made = _training(owner, f"digits-lr-{rate}", learning_rate=rate)
        _row(made, "COMPLETED", STEPS, days=2)
        making.attempt(made)
        _curves(made, rate, EPOCHS)
        trained.append(services.get(made.pk))
        saved(trained[number], step=STEPS, type="final", metric=0.04 + number / 100)
    _row(_training(owner, "digits-cancelled"), "CANCELLED", 31 * STEPS_PER_EPOCH, days=1)
    running = _training(owner, "digits-wide-042")
    epoch = 46
    _row(running, "RUNNING", epoch * STEPS_PER_EPOCH, attempt=2, steps_per_second=14.2)
    _curves(running, 0.002, RESUMED_AT + 3)
    _curves(running, 0.002, epoch, attempt=2, first=RESUMED_AT)
    _attempts(running)
    making.operation(owner, "PENDING", name="digits-next", tags=["night"])
    return Scene(services.get(running.pk), trained)


def _training(owner: User, name: str, **changes: object) -> Operation:
    config = {**recipes()["digits"].example, "epochs": EPOCHS, **changes}
    return services.submit(kind="training", config=config, owner=owner, name=name, tags=["digits"])


def _other(owner: User, name: str, *, kind: str, place: str, step: int, total: int) -> None:
    recipe = {"federated": "federated_digits", "rl": "grid_meadow"}[kind]
    made = services.submit(kind=kind, config=recipes()[recipe].example, owner=owner, name=name)
    metrics = {"federated": {"val_accuracy": 0.912}, "rl": {"return_mean": 3.41}}[kind]
    _row(made, "RUNNING", step, total=total, place=place, metrics=metrics)


def _row(made: Operation, state: str, step: int, *, days: int = 0, total: int = STEPS, **more):
    """Put an operation into a state that it reached some days ago."""
    now = timezone.now()
    values = {
        "state": state, "attempt": 1, "step": step, "total_steps": total, "worker_id": WORKER,
        "place": f"{step // STEPS_PER_EPOCH} of {EPOCHS} epochs",
        "created_at": now - timedelta(days=days, minutes=9),
        "started_at": now - timedelta(days=days, minutes=8), "progressed_at": now,
    }  # fmt: skip
    if state == "RUNNING":
        values["lease_expires_at"] = now + timedelta(hours=1)
    else:
        values["finished_at"] = now - timedelta(days=days, minutes=2)
    made.row.update(**(values | more))


def _attempts(running: Operation) -> None:
    step = RESUMED_AT * STEPS_PER_EPOCH
    making.attempt(running, 1, to_step=28 * STEPS_PER_EPOCH, outcome=Attempt.Outcome.LOST)
    making.attempt(running, 2, from_step=step)
    for attempt, epoch in ((1, 10), (1, RESUMED_AT), (2, 35), (2, 45)):
        row = services.get(running.pk)
        row.attempt = attempt
        row.row.update(attempt=attempt)
        saved(row, step=epoch * STEPS_PER_EPOCH, type="periodic", attempt=attempt,
              metric=_loss(epoch, 0.002), epoch=epoch)  # fmt: skip


def _curves(of: Operation, rate: float, last: int, *, attempt: int = 1, first: int = 0) -> None:
    noise = random.Random(f"{rate} {attempt}")  # noqa: S311 - of a picture
    points, now = [], timezone.now()
    retired_by = 2 if attempt == 1 and last == RESUMED_AT + 3 else None
    for epoch in range(first + 1, last + 1):
        loss = _loss(epoch, rate) * (1 + noise.uniform(-0.06, 0.06))
        values = {
            "epoch": epoch, "train_loss": loss * 0.7, "val_loss": loss,
            "val_accuracy": 1 - loss / 3, "train_accuracy": 1 - loss / 4,
            "learning_rate": rate * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2,
        }  # fmt: skip
        points += [
            MetricPoint(
                operation=of, attempt=attempt, name=name, step=epoch * STEPS_PER_EPOCH, value=value,
                at=now - timedelta(seconds=5 * (EPOCHS - epoch)),
                retired_by=retired_by if epoch > RESUMED_AT else None,
            )
            for name, value in values.items()
        ]  # fmt: skip
    MetricPoint.objects.bulk_create(points)
    latest = {each.name: each.value for each in points}
    of.row.update(metrics=latest)


def _loss(epoch: int, rate: float) -> float:
    return 0.03 + 2.2 * math.exp(-epoch * (0.08 + 40 * rate) / 2) + rate
