"""/metrics: figures of the rows, counters of what happened, and who may read them."""

import time
from datetime import timedelta

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from apps.installation import counters
from apps.installation.counters import Counters
from apps.installation.models import Counter
from apps.notifications.models import Delivery
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Event, Operation, Subscription
from apps.operations.scheduling import claims
from apps.workers import metrics, registry
from apps.workers.models import Worker
from tests.operations import rows
from trainops import metrics_settings
from trainops.clock import seconds_from_now
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint

TOKEN = "a token of the monitoring"
ROUNDING = 0.1  # seconds


@pytest.fixture(autouse=True)
def own_counters(monkeypatch):
    """Counts of other tests are not these; every module looks at the one object."""
    monkeypatch.setattr(counters.COUNTERS, "_waiting", Counters()._waiting)


@pytest.fixture
def figures(client, db):
    """Read the figures as Prometheus does: by name and labels."""

    def read(**headers):
        response = client.get("/metrics", headers=headers)
        assert response.status_code == 200, response.content
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in prometheus(response.content.decode())
            for sample in family.samples
        }

    return read


def named(found, name, **labels):
    return found.get((f"trainops_{name}", *sorted(labels.items())))


def test_waiting_operations_are_counted_by_kind_label_and_reason(figures):
    rows.submitted()
    rows.submitted(queue="a100")
    paused = rows.submitted(queue="a100")
    paused.row.update(
        queued_at=timezone.now() - timedelta(hours=1), not_before=seconds_from_now(60)
    )
    registry.register(worker_id="w", kinds=["training"], slots=2, num_running=2)
    found = figures()
    assert named(found, "queue_operations", kind="training", label="") == 1
    assert named(found, "queue_operations", kind="training", label="a100") == 2
    assert named(found, "queue_oldest_seconds", kind="training", label="a100") > 3599
    assert named(found, "waiting_operations", cause="PAUSED") == 1
    assert named(found, "waiting_operations", cause="NO_WORKER_WITH_LABEL") == 1
    assert named(found, "waiting_operations", cause="WORKERS_BUSY") == 1
    assert named(found, "waiting_operations", cause="SOON") == 0


def test_running_operations_and_their_leases(figures, settings):
    operation = rows.claimed()
    length = settings.THRESHOLDS.orphan_timeout_seconds
    began_at = time.monotonic()
    operation.row.update(lease_expires_at=seconds_from_now(length - 20))
    found = figures()
    assert named(found, "running_operations", kind="training") == 1
    latest = 20 + time.monotonic() - began_at
    assert 20 - ROUNDING <= named(found, "lease_age_seconds_max") <= latest + ROUNDING
    assert named(found, "leases_expired") == 0
    operation.row.update(lease_expires_at=seconds_from_now(-1))
    assert named(figures(), "leases_expired") == 1


def test_workers_their_slots_gpus_and_storage(figures):
    gpus = [{"id": f"GPU-{n}", "memory_bytes": 24 * 10**9} for n in range(4)]
    registry.register(worker_id="w", slots=4, num_running=1, capabilities={"gpus": gpus})
    Worker.objects.filter(pk="w").update(storage_free_bytes=5, storage_problem="not mounted")
    registry.register(worker_id="v", slots=2)
    Worker.objects.filter(pk="v").update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    operation = rows.claimed(worker_id="w")
    Attempt.objects.filter(operation=operation).update(device="GPU-3")
    found = figures()
    assert named(found, "workers", status="BUSY") == 1
    assert named(found, "workers", status="TEMPORARILY_UNAVAILABLE") == 1
    assert (named(found, "worker_slots", use="used"), named(found, "worker_slots", use="free")) == (
        1,
        3,
    )
    assert (named(found, "worker_gpus", use="used"), named(found, "worker_gpus", use="free")) == (
        1,
        3,
    )
    assert named(found, "storage_free_bytes_min") == 5
    assert named(found, "storage_problems") == 1
    assert named(found, "dataset_storage_problems") == 0
    Worker.objects.filter(pk="w").update(dataset_problem="not mounted", storage_problem="")
    found = figures()
    assert named(found, "storage_problems") == 0
    assert named(found, "dataset_storage_problems") == 1


def test_what_happens_is_counted_and_deletions_do_not_lower_it(
    figures, django_capture_on_commit_callbacks
):
    operation = rows.claimed()
    staged = StagedCheckpoint(
        "a0001-s0000000001-periodic", CheckpointType.PERIODIC, 1, "d", (), {}, write_seconds=1.5
    )
    ReportWriter(operation).commit(staged)
    with django_capture_on_commit_callbacks(execute=True):
        claims.finish(
            operation, State.FAILED, outcome=Attempt.Outcome.FAILED, reason=Reason.STALLED
        )
    found = figures()
    Operation.objects.all().delete()
    for each in (found, figures()):
        ended = {"kind": "training", "outcome": "failed", "reason": "STALLED"}
        assert named(each, "attempts_ended_total", **ended) == 1
        assert named(each, "operations_finished_total", kind="training", state="FAILED") == 1
        assert named(each, "checkpoints_committed_total", kind="training", type="periodic") == 1
        assert named(each, "checkpoint_write_seconds_total", kind="training") == 1.5


def test_the_outbox_and_notifications_that_lag(figures):
    operation = rows.submitted()
    for n in range(3):
        operation.record(f"E{n}", actor="test")
    newest = Event.objects.latest("pk").pk
    began_at = time.monotonic()
    Event.objects.update(at=timezone.now() - timedelta(minutes=5))
    Subscription.objects.all().delete()
    Subscription.objects.create(name="slow", cursor=newest - 2, retries={"1": {}})
    Subscription.objects.create(name="quick", cursor=newest)
    found = figures()
    assert named(found, "outbox_lag_events", subscriber="slow") == 2
    latest, lag = 300 + time.monotonic() - began_at, "outbox_lag_seconds"
    assert 300 - ROUNDING <= named(found, lag, subscriber="slow") <= latest + ROUNDING
    assert named(found, "outbox_lag_seconds", subscriber="quick") == 0
    assert named(found, "outbox_retries", subscriber="slow") == 1
    for status in Delivery.UNDELIVERED:
        assert named(found, "notifications_undelivered", status=status) == 0


def test_every_metric_is_described_and_both_formats_are_read(client, db):
    text = client.get("/metrics", headers={"Accept": "text/plain; version=0.0.4"})
    assert text["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each.type for each in prometheus(text.content.decode())}
    expected = {f"trainops_{name.removesuffix('_total')}": type
                for name, type in metrics.TYPES.items()}  # fmt: skip
    assert families == expected
    accept = "application/openmetrics-text; version=1.0.0"
    response = client.get("/metrics", headers={"Accept": accept})
    assert response["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert {each.name for each in open_metrics(response.content.decode())} == {*expected}


def test_sums_and_alerts_have_what_they_need_before_anything_has_happened(figures):
    found = figures()
    for kind in KINDS:
        assert named(found, "queue_operations", kind=kind, label="") == 0
        assert named(found, "running_operations", kind=kind) == 0
        assert named(found, "checkpoint_uploads_failed_total", kind=kind) == 0
        stalled = {"kind": kind, "outcome": "failed", "reason": "STALLED"}
        assert named(found, "attempts_ended_total", **stalled) == 0


def test_the_number_of_queries_does_not_grow(client, db, django_assert_max_num_queries):
    for n in range(5):
        rows.claimed(worker_id=f"w{n}")
        rows.submitted(queue=f"label{n}")
        registry.register(worker_id=f"w{n}", kinds=["training"])
    with django_assert_max_num_queries(15):
        client.get("/metrics")


class TestAccess:
    pytestmark = pytest.mark.django_db

    def test_without_a_setting_only_this_machine_reads(self, client):
        assert client.get("/metrics").status_code == 200
        assert client.get("/metrics", REMOTE_ADDR="::ffff:127.0.0.1").status_code == 200
        refused = client.get("/metrics", REMOTE_ADDR="10.1.2.3")
        assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
        assert b"TRAINOPS_METRICS_TOKEN" in refused.content

    @pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
    def test_a_proxy_that_is_not_configured_is_not_this_machine(self, client, header):
        assert client.get("/metrics", headers={header: "127.0.0.1"}).status_code == 401

    def test_behind_a_proxy_the_address_is_that_of_its_client(self, client, settings):
        settings.BEHIND_HTTPS_PROXY = True
        headers = {"X-Forwarded-For": "127.0.0.1, 10.1.2.3"}
        assert client.get("/metrics", headers=headers).status_code == 401

    def test_a_token_opens_and_closes(self, client, settings):
        environment = {"TRAINOPS_METRICS_TOKEN": TOKEN}
        settings.METRICS_TOKEN = metrics_settings.token(environment)
        settings.METRICS_NETWORKS = metrics_settings.networks(environment)
        assert client.get("/metrics").status_code == 401
        for given, status in ((TOKEN, 200), ("another", 401), ("", 401), (f"{TOKEN}ü", 401)):
            headers = {"Authorization": f"Bearer {given}"}
            assert client.get("/metrics", headers=headers, REMOTE_ADDR="10.1.2.3").status_code == (
                status
            )

    def test_networks_are_named(self, client, settings):
        environment = {"TRAINOPS_METRICS_NETWORKS": "10.1.0.0/16, fd00::/8"}
        settings.METRICS_NETWORKS = metrics_settings.networks(environment)
        for address, status in (("10.1.9.9", 200), ("fd00::5", 200), ("127.0.0.1", 401)):
            assert client.get("/metrics", REMOTE_ADDR=address).status_code == status

    def test_it_is_read_only(self, client):
        assert client.post("/metrics").status_code == 405


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TRAINOPS_METRICS_TOKEN": "short"}, "has 5 characters; allowed: at least 16"),
        ({"TRAINOPS_METRICS_NETWORKS": "everywhere"}, "got 'everywhere'; allowed: networks"),
        ({"TRAINOPS_METRICS_NETWORKS": "10.1.0.1/16"}, "got '10.1.0.1/16'; allowed: networks"),
    ],
)
def test_wrong_settings_are_refused(environment, words):
    with pytest.raises(ValueError, match=words):
        metrics_settings.token(environment)
        metrics_settings.networks(environment)


@pytest.mark.database
class TestCounters:
    def test_counts_of_several_processes_add_up(self, db):
        processes = [Counters(), Counters()]
        for process in processes:
            process.add("a", kind="x")
            process.add("a", 2, kind="x")
            process.add("a", kind="y")
            process.flush()
            process.flush()
        values = dict(Counter.objects.values_list("labels", "value"))
        assert values == {'{"kind": "x"}': 6, '{"kind": "y"}': 2}

    def test_what_the_database_does_not_take_is_kept(self, db, monkeypatch):
        process = Counters()
        process.add("a")
        away = pytest.MonkeyPatch.context
        with away() as patch:
            patch.setattr(counters, "_add", lambda *_: (_ for _ in ()).throw(DatabaseError("away")))
            with pytest.raises(DatabaseError):
                process.flush()
        process.add("a")
        process.flush()
        assert Counter.objects.get().value == 2

    @pytest.mark.django_db(transaction=True)
    def test_what_is_rolled_back_is_not_counted(self):
        process = Counters()
        with pytest.raises(RuntimeError), transaction.atomic():
            process.add_on_commit("a")
            raise RuntimeError
        process.flush()
        assert not Counter.objects.exists()
