"""One owner's checkpoints above their quota: periodic saving pauses, nothing is lost."""

import random
from dataclasses import replace
from itertools import product

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db.models import Q

from apps.checkpoints import services, storage
from apps.checkpoints.models import Checkpoint
from apps.dashboard.formatting import size
from apps.operations.attempts import quota
from apps.operations.attempts.quota import QuotaExceeded
from apps.operations.lifecycle import State
from apps.operations.models import Operation, Share
from apps.operations.requests import services as services_of_operations
from tests.operations import rows
from tests.operations.attempts import Running, run, submit
from tests.thinning import quick_some
from trainops.runtime.checkpoint.manifest import Artifact, CheckpointType, StagedCheckpoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def ana(db):
    return get_user_model().objects.create_user("ana")


@pytest.fixture
def limited(settings):
    def limited(num_bytes):
        changed = {"checkpoint_quota_bytes": num_bytes}
        settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=changed)

    return limited


def staged(step, num_bytes=100, kind="periodic", **more):
    directory = f"a0001-s{step:010d}-{kind}"
    files = {"model.pt": num_bytes} | more
    artifacts = (Artifact(name.replace("_pt", ".pt"), size, "") for name, size in files.items())
    return StagedCheckpoint(
        directory, CheckpointType(kind), step, f"{step}", tuple(artifacts), state={}
    )


def commit(operation, each):
    quota.require(operation, each)
    return services.commit(operation_id=operation.pk, attempt=1, staged=each)


def test_a_periodic_one_that_would_not_fit_is_refused_and_leaves_nothing(ana, limited):
    operation = rows.claimed(ana)
    limited(250)
    commit(operation, staged(10))
    commit(operation, staged(20))
    services.pin(Checkpoint.objects.get(step=10).pk, pinned=True)
    services.pin(Checkpoint.objects.get(step=20).pk, pinned=True)
    with pytest.raises(QuotaExceeded, match="of ana would take 300 bytes of the 250 that they may"):
        commit(operation, staged(30))
    assert sorted(Checkpoint.objects.values_list("step", flat=True)) == [10, 20]


def test_what_retention_lets_go_with_it_does_not_count(ana, limited):
    operation = rows.claimed(ana, checkpoint={"keep_last": 2, "keep_best": 0})
    limited(250)
    for step in (10, 20, 30, 40):
        commit(operation, staged(step))
        services.retain(operation.pk, **operation.retention)
    assert sorted(Checkpoint.objects.values_list("step", flat=True)) == [30, 40]


@pytest.mark.parametrize("kind", ["cancellation", "shutdown", "failure", "final"])
def test_the_last_one_is_saved_whatever_the_quota_says(ana, limited, kind):
    operation = rows.claimed(ana)
    limited(50)
    assert commit(operation, staged(10, kind=kind)).step == 10


def test_the_quota_is_of_one_owner_over_all_their_operations(ana, limited, django_user_model):
    limited(150)
    commit(rows.claimed(ana), staged(10))
    with pytest.raises(QuotaExceeded):
        commit(rows.claimed(ana), staged(10))
    ben = django_user_model.objects.create_user("ben")
    commit(rows.claimed(ben), staged(10))
    commit(rows.claimed(None), staged(10, num_bytes=1000))


def test_what_checkpoints_share_counts_once(ana, limited):
    operation = rows.claimed(ana)
    limited(250)
    first = commit(operation, staged(10, best_pt=100))
    again = at_home(staged(20, num_bytes=20, best_pt=100), first)
    assert commit(operation, again).counted_size_bytes == 20


def at_home(each, first):
    """Return it with its `best.pt` as the file of an earlier checkpoint."""
    model, best = each.artifacts
    home = first.artifacts_path.partition("/")[2]
    return replace(each, artifacts=(model, replace(best, home=home)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "better"), quick_some([*product(range(4), ["min", "max"])], every=5)
)
def test_what_is_counted_is_what_remains_after_commit_and_retention(ana, better, seed):
    """With drawn metrics, sizes, pins and shared files, compared with the rows that remain."""
    draw = random.Random(seed)  # noqa: S311 - draws cases
    kept = {"keep_last": draw.randint(1, 3), "keep_best": draw.randint(0, 2)}
    operation = rows.claimed(ana, checkpoint=kept, mode=better)
    for step in range(1, 25):
        each = staged(step, num_bytes=draw.randint(1, 50), best_pt=draw.randint(1, 50))
        each = replace(each, metric=draw.choice([None, 1.0, 2.0, draw.random()]))
        first = Checkpoint.objects.order_by("?").first()
        if first is not None and draw.random() < 0.6:
            size = first.manifest[1]["size_bytes"]
            home = first.manifest[1]["home"] or first.artifacts_path.partition("/")[2]
            best = Artifact("best.pt", size, "", home=home)
            each = replace(each, artifacts=(each.artifacts[0], best))
        expected = quota.bytes_with(operation, each, Q(operation__owner=ana))
        row = services.commit(operation_id=operation.pk, attempt=1, staged=each)
        services.retain(operation.pk, **operation.retention)
        assert services.total_bytes(Checkpoint.objects.all()) == expected
        if draw.random() < 0.2:
            Checkpoint.objects.filter(pk=row.pk).update(pinned=True)


def test_without_a_quota_nothing_is_refused(ana, settings):
    assert settings.THRESHOLDS.checkpoint_quota_bytes == 0
    commit(rows.claimed(ana), staged(10, num_bytes=10**15))
    assert quota.above() == []


def test_a_project_has_a_quota_over_the_operations_of_all_its_owners(ana, django_user_model):
    Share.objects.create(project="vision", max_checkpoint_bytes=150)
    ben = django_user_model.objects.create_user("ben")
    first, second, other = (rows.claimed(owner) for owner in (ana, ben, ben))
    for each in (first, second):
        each.row.update(project="vision")
    commit(first, staged(10))
    with pytest.raises(QuotaExceeded, match="of project vision would take 200 bytes of the 150"):
        commit(second, staged(10))
    commit(other, staged(10, num_bytes=1000))
    assert quota.above() == []
    commit(second, staged(10, num_bytes=50))
    assert quota.above() == [("project vision", 150, 150)]


def test_the_quota_of_a_share_replaces_that_for_every_owner(ana, limited, django_user_model):
    limited(150)
    share = Share.objects.create(owner=ana, max_checkpoint_bytes=300)
    commit(rows.claimed(ana), staged(10, num_bytes=290))
    assert quota.above() == [("ana", 290, 300)]
    with pytest.raises(QuotaExceeded, match="of the 300"):
        commit(rows.claimed(ana), staged(10))
    share.max_checkpoint_bytes = None
    share.save()
    with pytest.raises(QuotaExceeded, match="of the 150"):
        commit(rows.claimed(ana), staged(10))
    Share.objects.update(max_checkpoint_bytes=0)
    with pytest.raises(QuotaExceeded, match="of the 0"):
        commit(rows.claimed(ana), staged(10, num_bytes=1))


def test_every_page_says_whose_quota_is_nearly_used_up(ana, limited, admin_client):
    limited(1000)
    commit(rows.claimed(ana), staged(10, num_bytes=899))
    cache.clear()
    assert "over-quota" not in admin_client.get("/").content.decode()
    commit(rows.claimed(ana), staged(10, num_bytes=1))
    cache.clear()
    text = admin_client.get("/").content.decode()
    assert f"The checkpoints of ana take {size(900)} of {size(1000)}" in text


@pytest.mark.slow
def test_a_run_above_its_quota_saves_only_where_it_stops_and_continues_from_there(
    runtime, ana, limited
):
    limited(1)
    running = Running(
        runtime, submit(owner=ana, step_seconds=0.02, epochs=30, checkpoint={"every_steps": 2})
    ).until_step(9)
    running.held.stop = Operation.Stop.CANCEL
    operation = running.ended()
    assert operation.state == State.CANCELLED
    saved = Checkpoint.objects.get()
    assert saved.type == "cancellation"
    notes = list(operation.events.filter(what="SAVE_FAILED").values_list("note", flat=True))
    assert notes and all("the checkpoints of ana would take" in note for note in notes)
    left = [path.name for path in storage.operation_directory(operation.pk).iterdir()]
    assert left == [saved.artifacts_path.partition("/")[2]]
    services_of_operations.resume(operation_id=operation.pk, actor=ana)
    finished = run(runtime, operation)
    assert finished.state == State.COMPLETED
    assert finished.attempts.get(number=2).from_step == saved.step
