"""Why an operation waits: the first condition that no worker meets is named."""

from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from apps.operations.lifecycle import Reason
from apps.operations.placement import (
    GB,
    Device,
    FreeSlot,
    Need,
    Offer,
    ServingWorker,
    need_of,
)
from apps.operations.scheduling.blocking import (
    BlockingReason,
    QueueStatus,
    WaitingOperation,
    queue_status_of,
)
from apps.operations.sharing import Allowance
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError
from trainops.serving import NUM_WAIT_SLOTS

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = Device("GPU-1", 24 * GB)
LARGE = Device("GPU-2", 80 * GB)
WORKER = ServingWorker(
    "w", kinds=["training"], labels=["t4"], slots=2, gpus=[GPU], memory_bytes=64 * GB,
    disk_bytes=10 * GB,
)  # fmt: skip
TRAINING = WaitingOperation("training", num_ahead=0)


def answer(waiting, *workers):
    return queue_status_of(waiting, workers, moment=NOW)


def needing(**fields):
    return replace(TRAINING, need=Need(**fields))


@pytest.mark.parametrize(
    ("waiting", "workers", "code", "message"),
    [
        (TRAINING, [], BlockingReason.NO_WORKER, "No worker is running"),
        (
            WaitingOperation("rl"),
            [WORKER],
            BlockingReason.NO_WORKER_FOR_KIND,
            "the kind rl; served kinds: training",
        ),
        (
            replace(TRAINING, label="a100"),
            [WORKER],
            BlockingReason.NO_WORKER_WITH_LABEL,
            "No worker has the label a100; available labels: t4",
        ),
        (
            needing(device="cuda"),
            [replace(WORKER, gpus=[])],
            BlockingReason.NO_GPU,
            "Needs a GPU",
        ),
        (
            needing(processes=4),
            [replace(WORKER, max_processes=2), replace(WORKER, max_processes=3)],
            BlockingReason.TOO_FEW_SLOTS,
            "Needs 4 slots of one worker; the most that one has is 3.",
        ),
        (
            needing(processes=2),
            [replace(WORKER, max_processes=2)],
            BlockingReason.NO_GPU,
            "Needs 2 GPUs of one worker; the most that one has is 1.",
        ),
        (
            needing(processes=2, device="cpu"),
            [replace(WORKER, max_processes=2, num_running=1)],
            BlockingReason.WORKERS_BUSY,
            "2 slots of one worker must be free at once; next in the queue",
        ),
        (
            needing(processes=2, device="cpu"),
            [replace(WORKER, max_processes=2)],
            BlockingReason.SOON,
            "shortly",
        ),
        (
            needing(device="cuda", gpu_memory_bytes=40 * GB),
            [WORKER],
            BlockingReason.GPU_TOO_SMALL,
            "a GPU with 40 GB of memory; the largest has 24 GB",
        ),
        (
            needing(memory_bytes=128 * GB),
            [WORKER],
            BlockingReason.MEMORY_TOO_SMALL,
            "128 GB of memory; the largest has 64 GB",
        ),
        (
            TRAINING,
            [replace(WORKER, is_reachable=False)],
            BlockingReason.WORKERS_UNREACHABLE,
            "w could run it, but does not respond",
        ),
        (
            TRAINING,
            [replace(WORKER, is_draining=True)] * 2,
            BlockingReason.WORKERS_DRAINING,
            "2 workers could run it, but are draining",
        ),
        (
            needing(first_checkpoint_seconds=300),
            [replace(WORKER, seconds_left=120.0)],
            BlockingReason.WORKERS_ENDING,
            "w could run it, but ends before its first checkpoint: that takes about 300 s, and "
            "120 s are left",
        ),
        (
            needing(first_checkpoint_seconds=300),
            [replace(WORKER, seconds_left=-20.0), replace(WORKER, seconds_left=300.0)],
            BlockingReason.SOON,
            "shortly",
        ),
        (
            needing(uses_datasets=True),
            [replace(WORKER, dataset_problem="not mounted")],
            BlockingReason.DATASETS_AWAY,
            "The dataset storage is unavailable: not mounted",
        ),
        (
            TRAINING,
            [replace(WORKER, dataset_problem="not mounted")],
            BlockingReason.SOON,
            "shortly",
        ),
        (
            needing(checkpoint_bytes=6 * GB),
            [WORKER],
            BlockingReason.DISK_SHORT,
            "10 GB free on w, 12 GB required for two checkpoints",
        ),
        (
            replace(TRAINING, num_ahead=2),
            [replace(WORKER, num_running=2)],
            BlockingReason.WORKERS_BUSY,
            "all 2 slots are busy; 2 operations are ahead of it",
        ),
        (
            TRAINING,
            [replace(WORKER, slots=1, num_running=1)],
            BlockingReason.WORKERS_BUSY,
            "the only slot is busy; next in the queue",
        ),
        (
            needing(device="cuda"),
            [replace(WORKER, num_running=1, held=frozenset({GPU.id}))],
            BlockingReason.WORKERS_BUSY,
            "every suitable GPU is in use",
        ),
        (TRAINING, [WORKER], BlockingReason.SOON, "claims it shortly"),
        (
            needing(device="cuda", gpu_memory_bytes=40 * GB),
            [replace(WORKER, gpus=[GPU, LARGE], num_running=1, held=frozenset({GPU.id}))],
            BlockingReason.SOON,
            "claims it shortly",
        ),
        (
            needing(device="cpu"),
            [replace(WORKER, num_running=1, held=frozenset({GPU.id}))],
            BlockingReason.SOON,
            "claims it shortly",
        ),
    ],
)
def test_it_says_what_is_missing(waiting, workers, code, message):
    given = answer(waiting, *workers)
    assert given.code == code, given
    assert message in given.message


def test_one_worker_that_fits_is_enough():
    obstacles = [
        replace(WORKER, kinds=["rl"]),
        replace(WORKER, gpus=[]),
        replace(WORKER, is_draining=True),
        replace(WORKER, num_running=2),
    ]
    assert answer(needing(device="cuda"), *obstacles, WORKER).code == BlockingReason.SOON
    assert answer(needing(device="cuda"), *obstacles).code == BlockingReason.WORKERS_BUSY


def test_a_pause_says_until_when_and_why():
    paused = replace(TRAINING, paused_until=NOW + timedelta(seconds=9), reason=Reason.WORKER_LOST)
    given = answer(paused)
    assert given.code == BlockingReason.PAUSED
    assert "Restarts at 12:00:09 UTC" in given.message
    assert "the worker stopped responding" in given.message
    over = replace(paused, paused_until=NOW)
    assert answer(over, WORKER).code == BlockingReason.SOON


def test_a_worker_that_did_not_say_what_it_has_is_given_the_benefit_of_the_doubt():
    silent = ServingWorker("other")
    wanted = needing(memory_bytes=10**12, checkpoint_bytes=10**12)
    assert answer(wanted, silent).code == BlockingReason.SOON


def need(**config):
    found = need_of(KINDS["training"].parse_config({"recipe": "digits", **config}))
    assert found.first_checkpoint_seconds == 300  # every_seconds, rounded up
    return replace(found, first_checkpoint_seconds=None)


def test_who_asks_for_the_memory_of_a_gpu_asks_for_a_gpu():
    assert need() == Need()
    assert need(device="cpu", resources={"memory_gb": 1.5}) == Need("cpu", 0, 1_500_000_000)
    assert need(resources={"gpu_memory_gb": 80}) == Need("cuda", 80 * GB)
    with pytest.raises(ConfigError, match=r"resources.gpu_memory_gb: got 8 with device cpu"):
        need(device="cpu", resources={"gpu_memory_gb": 8})


def test_a_gpu_is_chosen_so_that_the_larger_ones_stay_free():
    assert Need().choose([LARGE, GPU]) == (GPU,)
    assert Need("cuda", 40 * GB).choose([GPU, LARGE]) == (LARGE,)
    assert Need("cuda", 90 * GB).choose([GPU, LARGE]) == ()
    assert Need("cpu").choose([GPU]) == ()


def test_each_process_gets_a_gpu_or_none_does():
    assert Need(processes=2).choose([LARGE, GPU]) == (GPU, LARGE)
    assert Need(processes=3).choose([LARGE, GPU]) == ()
    assert Need(gpu_memory_bytes=40 * GB, processes=2).choose([LARGE, GPU]) == ()


def allowed(slot, **need):
    return Offer([], free_slots=[slot]).allows(Need(**need))


def test_what_is_possible_follows_from_the_gpus():
    assert allowed(FreeSlot()) and allowed(FreeSlot(), device="cpu")
    assert not allowed(FreeSlot(), device="cuda")
    assert not allowed(FreeSlot(has_gpus=True)) and allowed(FreeSlot(has_gpus=True), device="cpu")
    assert allowed(FreeSlot(has_gpus=True, devices=[GPU]), device="cuda")


def test_several_processes_need_as_many_slots_and_gpus():
    slots = FreeSlot(devices=[GPU, LARGE], has_gpus=True, num_slots=3)
    assert allowed(slots, processes=2) and not allowed(slots, processes=3)
    assert allowed(slots, processes=3, device="cpu")
    assert not allowed(slots, processes=4, device="cpu")
    assert allowed(slots, processes=2, gpu_memory_bytes=24 * GB)
    assert not allowed(slots, processes=2, gpu_memory_bytes=40 * GB)
    assert allowed(slots, processes=1, gpu_memory_bytes=40 * GB)
    assert allowed(FreeSlot(num_slots=2), processes=2) and not allowed(FreeSlot(), processes=2)


def test_a_coordinator_needs_a_wait_slot_only():
    busy = replace(WORKER, num_running=2, held=frozenset({GPU.id}))
    server = needing(device="cuda", takes_slot=False)
    assert answer(TRAINING, busy).code == BlockingReason.WORKERS_BUSY
    assert answer(server, busy).code == BlockingReason.SOON
    reason = answer(server, replace(busy, num_waiting_slots=NUM_WAIT_SLOTS))
    assert reason.code == BlockingReason.WORKERS_BUSY and "all 4 wait slots" in reason.message


LIMITS = st.none() | st.integers(0, 4)
ALLOWANCES = st.builds(
    Allowance,
    name=st.just("ana"),
    max_slots=LIMITS,
    max_gpus=LIMITS,
    max_gpu_hours=LIMITS,
    slots=st.integers(0, 4),
    gpus=st.integers(0, 4),
    gpu_hours=st.integers(0, 5),
)
NEEDS = st.builds(
    Need,
    device=st.sampled_from(["auto", "cpu", "cuda"]),
    processes=st.integers(1, 3),
    nodes=st.just(3),
    min_nodes=st.integers(1, 3),
)
ON_GPUS = replace(WORKER, gpus=[GPU] * 4, slots=4, is_node=True)
ON_CPUS = replace(ON_GPUS, gpus=[])


@given(
    NEEDS,
    st.lists(ALLOWANCES, max_size=2),
    st.lists(st.sampled_from([ON_GPUS, ON_CPUS]), min_size=3, max_size=4),
)
def test_a_limit_that_is_too_small_has_another_reason_than_one_that_is_used_up(
    need, allowances, workers
):
    waiting = replace(TRAINING, need=need, allowances=allowances)
    code, message = astuple(answer(waiting, *workers))
    later = answer(replace(waiting, allowances=[each.unused for each in allowances]), *workers)
    event(code)
    if code is BlockingReason.SHARE_TOO_SMALL:
        assert message.startswith("Needs more than its share: ana ")
        assert later == QueueStatus(code, message)
        assert " uses " not in message and "has used" not in message
    if code is BlockingReason.SHARE_USED_UP:
        assert message.startswith("Waiting for its share: ana ")
        assert later.code not in (BlockingReason.SHARE_TOO_SMALL, BlockingReason.SHARE_USED_UP)


def test_of_a_cpu_and_a_gpu_worker_the_one_that_the_share_excludes_is_explained():
    pair = needing(nodes=2, min_nodes=2)
    pair = replace(pair, allowances=[Allowance("ana", max_gpus=1)])
    told = answer(pair, ON_GPUS, ON_CPUS)
    assert told == QueueStatus(
        BlockingReason.SHARE_TOO_SMALL,
        "Needs more than its share: ana may use 1 GPU at once, and it needs 2.",
    )
