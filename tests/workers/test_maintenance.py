"""What a sweep does where one of its parts breaks, and when a clean-up is due."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from apps.installation.models import PeriodicJob
from apps.operations import outbox
from apps.operations.points import latest_values
from apps.operations.scheduling import budgets, preemption, stuck, sweeps
from apps.operations.studies import advancing
from apps.workers import hosts, maintenance, neighbours, registry
from trainops.clock import seconds_from_now
from trainops.http import sessions

PARTS = [
    (neighbours, "recover_ended"),
    (sweeps, "sweep"),
    (registry, "release_lost"),
    (stuck.WATCH, "check"),
    (budgets, "enforce"),
    (preemption, "preempt"),
    (outbox, "deliver"),
    (advancing, "advance_if_due"),
    (latest_values, "write_missing"),
    (hosts, "drain_faulty"),
]


@pytest.mark.parametrize("broken", PARTS, ids=[name for _, name in PARTS])
def test_a_part_that_breaks_keeps_no_other_from_its_turn(monkeypatch, broken):
    called = []

    def part(name):
        def call(**_):
            called.append(name)
            if name == broken[1]:
                raise ZeroDivisionError(name)

        return call

    for module, name in PARTS:
        monkeypatch.setattr(module, name, part(name))
    with pytest.raises(ZeroDivisionError, match=broken[1]):
        maintenance.sweep(actor="beat")
    assert called == [name for _, name in PARTS]


@pytest.fixture
def cleaned(monkeypatch):
    """Return the actors of the clean-ups that were made; real rows say when they are due."""
    actors = []
    monkeypatch.setattr(maintenance.cleaning, "clean_up", lambda *, actor: actors.append(actor))
    return actors


def last_run(hours_ago):
    PeriodicJob.objects.update(last_run_at=seconds_from_now(-3600 * hours_ago))


@pytest.mark.django_db
@pytest.mark.database
class TestCleanUp:
    def test_it_is_due_by_a_row_whichever_process_asks_and_whenever_that_process_began(
        self, cleaned, settings
    ):
        """A scheduler that counts from its own start would never clean up if it lives shortly."""
        hours = settings.THRESHOLDS.cleanup_interval_hours
        asked = [maintenance.clean_up_if_due(actor=actor) for actor in ("beat", "beat", "worker")]
        assert asked == [True, False, False]
        last_run(hours - 0.1)
        assert not maintenance.clean_up_if_due(actor="beat")
        last_run(hours + 0.1)
        assert maintenance.clean_up_if_due(actor="worker")
        assert cleaned == ["beat", "worker"]

    @pytest.mark.parametrize("broken", ["exports.sweep", "retention.thin_old", "uploads.sweep"])
    def test_a_part_that_breaks_keeps_no_other_from_its_turn(self, broken, cleaned, monkeypatch):
        def fails():
            raise KeyError("unknown")

        module, name = broken.split(".")
        monkeypatch.setattr(getattr(maintenance, module), name, fails)
        with pytest.raises(KeyError):
            maintenance.clean_up_if_due(actor="beat")
        assert cleaned == ["beat"]

    def test_it_deletes_expired_sessions_and_no_others(self, cleaned, monkeypatch):
        monkeypatch.setattr(sessions, "BATCH", 2)
        for number in range(5):
            expires = timezone.now() - timedelta(seconds=1 + number)
            Session.objects.create(pk=f"expired-{number}", expire_date=expires)
        Session.objects.create(pk="valid", expire_date=timezone.now() + timedelta(minutes=1))
        assert maintenance.clean_up_if_due(actor="beat")
        assert Session.objects.get().pk == "valid"

    def test_where_the_storage_is_away_it_is_due_again_sooner(self, monkeypatch, settings):
        def away(*, actor):
            raise OSError("away")

        monkeypatch.setattr(maintenance.cleaning, "clean_up", away)
        assert maintenance.clean_up_if_due(actor="beat")
        assert not maintenance.clean_up_if_due(actor="beat")
        run_at = PeriodicJob.objects.get().last_run_at
        due_at = run_at + timedelta(hours=settings.THRESHOLDS.cleanup_interval_hours)
        left = (due_at - timezone.now()).total_seconds()
        assert left == pytest.approx(maintenance.CLEAN_UP_RETRY.total_seconds(), abs=60)
