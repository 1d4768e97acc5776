"""Whatever is saved, lost, pinned and cleaned up in whatever order: what must stay stays."""

import os
import threading
import time

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.checkpoints import cleaning, integrity, services, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.owners import owners
from apps.operations.lifecycle import State
from tests.checkpoints.test_services import altered, begun, commit
from tests.operations import rows

pytestmark = [pytest.mark.django_db, pytest.mark.database]
LONG_AGO = time.time() - 10 * 24 * 3600
METRICS = st.none() | st.sampled_from([0.1, 0.2, 0.3])
BOTH = st.tuples(METRICS, METRICS)  # by `monitor`, less is better; by ACCURACY, more
ACCURACY = "val_accuracy"
EVENTS = st.one_of(
    st.tuples(st.just("save"), BOTH),
    st.tuples(st.just("fail"), BOTH),
    st.tuples(st.just("die while saving"), st.none()),
    st.tuples(st.just("resume"), st.integers(0, 5)),
    st.tuples(st.just("begin"), st.none()),
    st.tuples(st.just("pin"), st.integers(0, 5)),
    st.tuples(st.just("unpin"), st.integers(0, 5)),
    st.tuples(st.just("corrupt"), st.integers(0, 5)),
    st.tuples(st.just("retain"), st.sampled_from([(1, 0), (1, 1), (2, 1), (3, 2)])),
    st.tuples(st.just("clean up"), st.none()),
)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_what_is_committed_while_retention_decides_stays(monkeypatch):
    operation = rows.claimed()
    for step in (10, 20):
        commit(operation, step)
    decide = services.expired

    def commit_a_newer_one():
        try:
            with transaction.atomic():
                owners().lock([operation.pk])  # as a commit does, with its fence
                commit(operation, 30)
        finally:
            connection.close()

    committing = threading.Thread(target=commit_a_newer_one)

    def decided(*arguments, **policy):
        going = decide(*arguments, **policy)
        committing.start()
        committing.join(1.0)  # it gets through only where nothing holds it up
        return going

    monkeypatch.setattr(services, "expired", decided)
    services.retain(operation.pk, keep_last=1, keep_best=0, better="min")
    committing.join()
    left = Checkpoint.objects.filter(operation_id=operation.pk).values_list("step", flat=True)
    assert sorted(left) == [20, 30]


class Story:
    """One operation, and what happens to its checkpoints."""

    def __init__(self):
        self.operation = rows.claimed(monitors={ACCURACY: "max"})
        self.attempt, self.step = 1, 0
        self.begun = 0  # the attempt that restored what it starts from last

    @property
    def rows(self):
        return Checkpoint.objects.filter(operation_id=self.operation.pk)

    def happens(self, what, detail):
        getattr(self, what.replace(" ", "_"))(detail)

    def begin(self, _=None):
        self.begun = self.attempt
        begun(self.operation, of=self.attempt)

    def save(self, measured, kind="periodic"):
        self.begin()
        self.step += 10
        metric, accuracy = measured
        further = {} if accuracy is None else {ACCURACY: accuracy}
        commit(self.operation, self.step, metric, kind, self.attempt, **further)

    def fail(self, measured):
        """The failure checkpoint is of the last safe point, where the next attempt continues."""
        self.save(measured, "failure")
        self.resume(0)

    def die_while_saving(self, _):
        self.begin()
        name = f"a{self.attempt:04d}-s{self.step + 10:010d}-periodic"
        path = storage.operation_directory(self.operation.pk) / name
        path.mkdir(parents=True)
        (path / "model.pt").write_bytes(b"half of it")
        for each in (path / "model.pt", path):
            os.utime(each, (LONG_AGO, LONG_AGO))
        self.resume(0)

    def resume(self, which):
        if candidates := services.to_resume_from(self.operation.pk):
            self.step = candidates[which % len(candidates)].step
        else:
            self.step = 0
        self.attempt += 1
        self.operation.row.update(attempt=self.attempt)

    def pin(self, which, pinned=True):
        if found := list(self.rows.newest_first()):
            services.pin(found[which % len(found)].pk, pinned=pinned)

    def unpin(self, which):
        self.pin(which, pinned=False)

    def corrupt(self, which):
        if found := list(self.rows.newest_first()):
            bad = found[which % len(found)]
            integrity.mark(bad.artifacts_path, altered(bad))

    def retain(self, policy):
        keep_last, keep_best = policy
        must_stay = self.must_stay(keep_best)
        policy = {**self.operation.retention, "keep_last": keep_last, "keep_best": keep_best}
        services.retain(self.operation.pk, **policy)
        assert must_stay <= self.keys()

    def clean_up(self, _):
        """The operation is not finished, so every row stays, however old.

        Of files without one, those stay that the next attempt to begin may adopt.
        """
        keys, paths = self.keys(), self.paths()
        cleaning.clean_up(actor="test", older_than_days=0)
        assert self.keys() == keys
        assert self.paths() == {
            path for path in paths if storage.attempt_of(path.name) >= self.begun or self.owns(path)
        }

    def paths(self):
        return set(storage.operation_directory(self.operation.pk).glob("*"))

    def must_stay(self, keep_best):
        healthy = self.rows.healthy()
        newest = [each.pk for each in healthy.newest_first() if each.type != "failure"][:1]
        newest += [each.pk for each in healthy.newest_first()][:1]
        best = healthy.exclude(metric=None).order_by("metric", "step")[:keep_best]
        pinned = self.rows.filter(pinned=True)
        best = {*best.values_list("pk", flat=True), *self.most_accurate()[:keep_best]}
        return {*newest, *best, *pinned.values_list("pk", flat=True)}

    def most_accurate(self):
        """Return the healthy ones by what was measured on their weights, the best first."""
        found = [
            (-line["metric"], each.step, each.pk)
            for each in self.rows.healthy()
            if (line := each.state["monitored"].get(ACCURACY))
        ]
        return [pk for *_, pk in sorted(found)]

    def keys(self):
        return set(self.rows.values_list("pk", flat=True))

    def owns(self, path):
        return self.rows.filter(artifacts_path=f"{path.parent.name}/{path.name}").exists()

    def is_sound(self):
        for row in self.rows:
            assert storage.directory(row.artifacts_path).exists(), f"{row} points to nothing"
        best = self.rows.healthy().exclude(metric=None).order_by("metric", "step").first()
        assert list(self.rows.filter(is_best=True)) == ([best] if best else [])
        marked = [each.pk for each in self.rows if each.best_of]
        assert marked == self.most_accurate()[:1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_examples",
    [
        8,
        pytest.param(30, marks=pytest.mark.slow),
        pytest.param(600, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_what_must_stay_stays(num_examples, django_capture_on_commit_callbacks):
    @settings(max_examples=num_examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(EVENTS, max_size=25))
    def runs(events):
        story = Story()
        for what, detail in events:
            with django_capture_on_commit_callbacks(execute=True):
                story.happens(what, detail)
            story.is_sound()
        pinned = set(story.rows.filter(pinned=True).values_list("pk", flat=True))
        story.operation.row.update(state=State.CANCELLED, lease_expires_at=None)
        with django_capture_on_commit_callbacks(execute=True):
            cleaning.clean_up(actor="test", older_than_days=0)
        assert story.keys() == pinned
        story.is_sound()

    runs()
