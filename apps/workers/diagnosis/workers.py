"""What the workers said of themselves, and whether background work is done."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings

from apps.checkpoints.signing_keys import SHORT, own_keys
from apps.operations.models import Operation
from apps.workers import metrics
from apps.workers.clock_skew import seconds as seconds_of_skew
from apps.workers.diagnosis.findings import Diagnosis
from apps.workers.models import LOCAL, Worker
from trainops.kind import KINDS
from trainops.paths import COMMAND
from trainops.version import VERSION

MAX_SKEW_SECONDS = 5.0  # leases do not depend on it; --until, log lines and signatures do
SKEWED = "Synchronise the clock of the machine (chrony, systemd-timesyncd)."
MAX_LAG_SECONDS = 300.0
GONE = Worker.Status.GONE


def _present() -> list[Any]:
    rows: Any = Worker.objects.taking_work().with_status()
    return list(rows.exclude(status=GONE).order_by("worker_id"))


def clocks() -> Iterator[Diagnosis]:
    found = {"this machine": seconds_of_skew()}
    for each in _present():
        skew = each.capabilities.get("clock_skew_seconds")
        if isinstance(skew, int | float):
            found[each.host or each.worker_id] = float(skew)
    late = {name: skew for name, skew in found.items() if abs(skew) > MAX_SKEW_SECONDS}
    for name, skew in late.items():
        what = "ahead of" if skew > 0 else "behind"
        yield Diagnosis.warning(
            f"the clock of {name} is {abs(skew):.1f} s {what} the database's", SKEWED
        )
    if not late:
        most = max(map(abs, found.values()))
        yield Diagnosis.ok(
            f"{len(found)} clocks differ from the database's by at most {most:.1f} s"
        )


def registered() -> Iterator[Diagnosis]:
    workers = _present()
    reachable = [each for each in workers if each.status != Worker.Status.TEMPORARILY_UNAVAILABLE]
    if not reachable:
        yield Diagnosis.warning(
            "no worker responds", "Start one: python3 -m trainops up, with the same stores."
        )
        return
    problems = [finding for each in workers for finding in _of_worker(each)]
    yield from problems
    served = {kind for each in reachable for kind in (each.kinds or KINDS)}
    if missing := sorted({*KINDS.computed} - served):
        yield Diagnosis.warning(
            f"no worker serves: {', '.join(missing)}", "Extend TRAINOPS_WORKER_KINDS of a worker."
        )
    if not problems and not missing:
        yield Diagnosis.ok(f"{len(reachable)} workers respond, all of version {VERSION}")


def _of_worker(worker: Any) -> Iterator[Diagnosis]:
    name = worker.worker_id
    if worker.status == Worker.Status.TEMPORARILY_UNAVAILABLE:
        yield Diagnosis.warning(
            f"{name} sends no heartbeat", "See whether its process, its machine or network is up."
        )
    version = worker.capabilities.get("trainops")
    if worker.worker_type == LOCAL and version and version != VERSION:
        yield Diagnosis.problem(
            f"{name} runs trainops {version}, this is {VERSION}",
            "Update both to one version, and restart the worker.",
        )
    if worker.worker_type == LOCAL:
        yield from _of_key(worker)
    if worker.storage_problem:
        yield Diagnosis.problem(
            f"{name} cannot use the checkpoint storage: {worker.storage_problem}",
            f"Run `{COMMAND} doctor` on {worker.host or 'its machine'}: it names the cause.",
        )
    if worker.dataset_problem:
        yield Diagnosis.warning(
            f"{name} cannot read datasets, and leaves operations that use some to other workers: "
            f"{worker.dataset_problem}",
            f"Run `{COMMAND} doctor` on {worker.host or 'its machine'}: it names the cause. With "
            "a data directory of its own this is as it has to be (docs/several-hosts.md).",
        )
    if worker.is_draining and worker.drain_reason:
        yield Diagnosis.warning(
            f"{name} is draining: {worker.drain_reason}", f"trainops workers undrain {name}"
        )
    if worker.last_error:
        yield Diagnosis.warning(
            f"{name} reported: {worker.last_error}", "Its log has more; later reports replace it."
        )


def _of_key(worker: Any) -> Iterator[Diagnosis]:
    key = worker.capabilities.get("signing_key")  # public: it identifies the secret key
    own, *former = own_keys()
    if not key or key == own:
        return
    if key in former:
        yield Diagnosis.warning(
            f"{worker.worker_id} still uses a former secret key: it does not read what is "
            "encrypted or signed with the new one",
            f"Give {worker.host or 'its machine'} the new secret key, and restart the worker.",
        )
        return
    yield Diagnosis.problem(
        f"{worker.worker_id} has another secret key than this machine (public keys {key[:SHORT]} "
        f"and {own[:SHORT]}): neither reads what the other has encrypted or signed",
        f"Copy the secret_key of the first machine to {worker.host or 'its machine'} "
        "(or set TRAINOPS_SECRET_KEY alike), and restart the worker.",
    )


def background_work() -> Iterator[Diagnosis]:
    silent = Operation.objects.silent().count()
    if silent:
        yield Diagnosis.problem(
            f"{silent} operations have expired leases that no sweep has handled",
            "Start web, beat or a worker: each of them sweeps.",
        )
    lags = {values[0]: value for name, values, value in metrics.outbox()
            if name == "outbox_lag_seconds" and value > MAX_LAG_SECONDS}  # fmt: skip
    for name, lag in lags.items():
        yield Diagnosis.warning(
            f"events reach {name} {lag:.0f} s late",
            "Start web, beat or a worker, and look for errors of it in their logs.",
        )
    if not silent and not lags:
        interval = settings.THRESHOLDS.orphan_check_interval_seconds
        yield Diagnosis.ok(f"leases and events are handled (sweeps every {interval:g} s)")
