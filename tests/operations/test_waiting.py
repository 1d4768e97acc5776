"""What an operation waits for: each obstacle is named, the first one that nobody is left after."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from apps.operations.lifecycle import Reason
from apps.operations.placement import GB, Device, Need, Room, ServingWorker, need_of
from apps.operations.scheduling.waiting import Wait, Waiting, waiting_for
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError
from trainops.serving import NUM_SEATS

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = Device("GPU-1", 24 * GB)
LARGE = Device("GPU-2", 80 * GB)
WORKER = ServingWorker(
    "w", kinds=["training"], labels=["t4"], slots=2, gpus=[GPU], memory_bytes=64 * GB,
    disk_bytes=10 * GB,
)  # fmt: skip
TRAINING = Waiting("training", num_ahead=0)


def answer(waiting, *workers):
    return waiting_for(waiting, workers, moment=NOW)


def needing(**fields):
    return replace(TRAINING, need=Need(**fields))


@pytest.mark.parametrize(
    ("waiting", "workers", "code", "told"),
    [
        (TRAINING, [], Wait.NO_WORKER, "No worker is running"),
        (Waiting("rl"), [WORKER], Wait.NO_WORKER_FOR_KIND, "the kind rl; served: training"),
        (
            replace(TRAINING, label="a100"),
            [WORKER],
            Wait.NO_WORKER_WITH_LABEL,
            "No worker has the label a100; there are: t4",
        ),
        (needing(device="cuda"), [replace(WORKER, gpus=[])], Wait.NO_GPU, "It needs a GPU"),
        (
            needing(device="cuda", gpu_memory_bytes=40 * GB),
            [WORKER],
            Wait.GPU_TOO_SMALL,
            "a GPU with 40 GB; the largest there is has 24 GB",
        ),
        (
            needing(memory_bytes=128 * GB),
            [WORKER],
            Wait.MEMORY_TOO_SMALL,
            "128 GB of memory; the largest has 64 GB",
        ),
        (
            TRAINING,
            [replace(WORKER, is_reachable=False)],
            Wait.WORKERS_UNREACHABLE,
            "w could take it, but does not answer",
        ),
        (
            TRAINING,
            [replace(WORKER, is_draining=True)] * 2,
            Wait.WORKERS_DRAINING,
            "2 workers could take it, but are draining",
        ),
        (
            needing(checkpoint_bytes=6 * GB),
            [WORKER],
            Wait.DISK_SHORT,
            "10 GB free on w, and two of its checkpoints take 12 GB",
        ),
        (
            replace(TRAINING, num_ahead=2),
            [replace(WORKER, num_running=2)],
            Wait.WORKERS_BUSY,
            "all 2 slots are busy, 2 stand before it",
        ),
        (
            TRAINING,
            [replace(WORKER, slots=1, num_running=1)],
            Wait.WORKERS_BUSY,
            "the only slot is busy; it is the next",
        ),
        (
            needing(device="cuda"),
            [replace(WORKER, num_running=1, held=frozenset({GPU.id}))],
            Wait.WORKERS_BUSY,
            "every GPU that it could use is in use",
        ),
        (TRAINING, [WORKER], Wait.SOON, "in a moment"),
        (
            needing(device="cuda", gpu_memory_bytes=40 * GB),
            [replace(WORKER, gpus=[GPU, LARGE], num_running=1, held=frozenset({GPU.id}))],
            Wait.SOON,
            "in a moment",
        ),
        (
            needing(device="cpu"),
            [replace(WORKER, num_running=1, held=frozenset({GPU.id}))],
            Wait.SOON,
            "in a moment",
        ),
    ],
)
def test_it_says_what_is_missing(waiting, workers, code, told):
    given = answer(waiting, *workers)
    assert given.code == code, given
    assert told in given.message


def test_one_worker_that_fits_is_enough():
    obstacles = [
        replace(WORKER, kinds=["rl"]),
        replace(WORKER, gpus=[]),
        replace(WORKER, is_draining=True),
        replace(WORKER, num_running=2),
    ]
    assert answer(needing(device="cuda"), *obstacles, WORKER).code == Wait.SOON
    assert answer(needing(device="cuda"), *obstacles).code == Wait.WORKERS_BUSY


def test_a_pause_says_until_when_and_why():
    paused = replace(TRAINING, paused_until=NOW + timedelta(seconds=9), reason=Reason.WORKER_LOST)
    given = answer(paused)
    assert given.code == Wait.PAUSED
    assert "until 12:00:09 UTC" in given.message and "its worker went silent" in given.message
    over = replace(paused, paused_until=NOW)
    assert answer(over, WORKER).code == Wait.SOON


def test_a_worker_that_did_not_say_what_it_has_is_given_the_benefit_of_the_doubt():
    silent = ServingWorker("other")
    wanted = needing(memory_bytes=10**12, checkpoint_bytes=10**12)
    assert answer(wanted, silent).code == Wait.SOON


def need(**config):
    return need_of(KINDS["training"].parse_config({"recipe": "digits", **config}))


def test_who_asks_for_the_memory_of_a_gpu_asks_for_a_gpu():
    assert need() == Need()
    assert need(device="cpu", resources={"memory_gb": 1.5}) == Need("cpu", 0, 1_500_000_000)
    assert need(resources={"gpu_memory_gb": 80}) == Need("cuda", 80 * GB)
    with pytest.raises(ConfigError, match=r"resources.gpu_memory_gb: got 8, but device is cpu"):
        need(device="cpu", resources={"gpu_memory_gb": 8})


def test_a_gpu_is_chosen_so_that_the_larger_ones_stay_free():
    assert Need().choose([LARGE, GPU]) == GPU
    assert Need("cuda", 40 * GB).choose([GPU, LARGE]) == LARGE
    assert Need("cuda", 90 * GB).choose([GPU, LARGE]) is None
    assert Need("cpu").choose([GPU]) is None


def test_what_is_possible_follows_from_the_gpus():
    assert Room().possible_devices == ("auto", "cpu")
    assert Room(has_gpus=True).possible_devices == ("cpu",)
    assert "cuda" in Room(has_gpus=True, devices=[GPU]).possible_devices


def test_who_waits_for_others_needs_a_seat_only():
    busy = replace(WORKER, num_running=2, held=frozenset({GPU.id}))
    server = needing(device="cuda", takes_slot=False)
    assert answer(TRAINING, busy).code == Wait.WORKERS_BUSY
    assert answer(server, busy).code == Wait.SOON
    told = answer(server, replace(busy, num_seated=NUM_SEATS))
    assert told.code == Wait.WORKERS_BUSY and "4 operations already that wait" in told.message
