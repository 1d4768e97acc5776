"""Rows for the pages to show, in every state, without a worker."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import Attempt, LogChunk, MetricPoint, Operation
from apps.operations.requests import services
from trainops.http.roles import ensure_roles
from trainops.recipes import recipes

STEPS_PER_EPOCH = 10


def person(name: str, role: str | None) -> User:
    ensure_roles()
    user = User.objects.create_user(name)  # hashing a password would take longer than the test
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def operation(owner: User, state: str = "PENDING", **fields: Any) -> Operation:
    """An operation that was submitted properly and then put into `state`."""
    tags = fields.pop("tags", ())
    name = fields.pop("name", f"a {state.lower()} one")
    config = {**recipes()["digits"].example, "epochs": 5}
    made = services.submit(kind="training", config=config, owner=owner, name=name, tags=tags)
    now = timezone.now()
    defaults: dict[str, Any] = {"state": state}
    if state == State.RUNNING:
        defaults |= {"lease_expires_at": now + timedelta(seconds=60), "worker_id": "worker-1"}
    if "metrics" in fields:
        defaults["attempt"] = 1  # which measured them
    if state in ("RUNNING", "COMPLETED", "FAILED", "CANCELLED"):
        defaults |= {"started_at": now - timedelta(minutes=5), "attempt": 1}
        defaults |= {"step": 20, "total_steps": 50, "place": "3 of 5 epochs"}
    if state in ("COMPLETED", "FAILED", "CANCELLED"):
        defaults["finished_at"] = now - timedelta(minutes=1)
    if state == "FAILED":
        defaults |= {"reason": "JOB_ERROR", "error": {"code": "JOB_ERROR", "message": "it broke"}}
    made.row.update(**(defaults | fields))
    return services.get(made.pk)


def attempt(of: Operation, number: int = 1, **fields: Any) -> Attempt:
    defaults = {"worker_id": "worker-1", "from_step": 0, "to_step": of.step}
    return Attempt.objects.create(operation=of, number=number, **(defaults | fields))


def curve(of: Operation, *, attempt: int = 1, first: int = 1, last: int = 20) -> None:
    """A loss at every step; an epoch, a validation loss and an accuracy every ten."""
    points = []
    for step in range(first, last + 1):
        values = {"train_loss": 2.0 / step}
        if step % STEPS_PER_EPOCH == 0:
            epoch = step / STEPS_PER_EPOCH
            values |= {"val_loss": 2.5 / step, "val_accuracy": 1 - 1 / step, "epoch": epoch}
        points += [
            MetricPoint(
                operation=of, attempt=attempt, name=name, step=step, value=value,
                at=timezone.now() - timedelta(seconds=last - step),
            )
            for name, value in values.items()
        ]  # fmt: skip
    MetricPoint.objects.bulk_create(points)


def log(of: Operation, text: str, attempt: int = 1) -> LogChunk:
    return LogChunk.objects.create(operation=of, attempt=attempt, text=text)
