"""Rows of the list are rendered once and remembered; what a reader sees is as if rendered now."""

import random
from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from apps.dashboard import rows
from apps.dashboard.time_zone import zone
from apps.operations.models import Operation
from tests.pages import making
from tests.pages.test_list import STATES

ZONES = ["UTC", "Europe/Berlin", "Pacific/Chatham"]
COLUMNS = [(), ("epochs",), ("val_loss", "epochs")]
REMOVED = [(), ("worker", "started")]
CHANGES = [
    {"name": "another"}, {"step": 7, "total_steps": 9}, {"place": "epoch 3"},
    {"metrics": {"val_loss": 0.25}}, {"metrics": {"val_loss": "nan"}},
    {"is_favourite": True}, {"concerns": "STUCK"},
    {"error": {"message": "<b>broke</b>"}}, {"steps_per_second": 0.5},
]  # fmt: skip


def seen(view):
    """Return the list that a user sees: (user, time zone, added columns, removed ones)."""
    user, name, columns, removed = view
    with timezone.override(zone(name)):
        found = rows.select(Operation.objects.order_by("pk"), columns)
        return rows.lines(found, user, columns, removed)


@pytest.mark.parametrize("seed", range(3))
def test_a_remembered_row_is_what_a_rendered_one_would_be(seed, ana, ben, vera, monkeypatch):
    drawn = random.Random(seed)  # noqa: S311
    operations = [making.operation(ana, state, tags=["night"]) for state in STATES]
    now, num_rendered = timezone.now(), 0
    whole = rows.render_to_string

    def counted(*arguments):
        nonlocal num_rendered
        num_rendered += 1
        return whole(*arguments)

    monkeypatch.setattr(rows, "render_to_string", counted)
    for _ in range(12):
        now += timedelta(seconds=drawn.choice([0.5, 40, 4000, 90_000, 40 * 86_400]))
        changed = drawn.choice(operations)
        Operation.objects.filter(pk=changed.pk).update(**drawn.choice(CHANGES))
        view = tuple(map(drawn.choice, ([ana, ben, vera], ZONES, COLUMNS, REMOVED)))
        with time_machine.travel(now, tick=False):
            seen(view)
            num_rendered = 0
            found = seen(view)
            assert num_rendered == 0
            rows.rendered.cache_clear()
            assert seen(view) == found
            assert num_rendered == len(operations)


def test_the_age_of_a_remembered_row_is_that_of_now(ana):
    made = making.operation(ana, "PENDING")
    with time_machine.travel(made.created_at + timedelta(seconds=30), tick=False):
        assert "30 s ago" in seen((ana, "UTC", (), ()))[0].html
    with time_machine.travel(made.created_at + timedelta(hours=5), tick=False):
        assert "5 h ago" in seen((ana, "UTC", (), ()))[0].html
