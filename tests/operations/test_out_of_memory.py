"""What an operation that ran out of memory tells: how much it used, and what to change."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from apps.operations.attempts import memory, outcomes
from apps.operations.attempts.memory import MemoryUse, explained, remedies
from apps.operations.attempts.outcomes import Cancelled, Interrupted
from apps.operations.lifecycle import Reason
from apps.operations.models import LogChunk
from tests.operations.attempts import run, submit
from trainops.kind import KINDS
from trainops.process.failure_messages import failure_message
from trainops.process.reason_codes import reason_code

USE = MemoryUse(0, peak=3_210_000_000, total=8_000_000_000, free=120_000_000)
LARGER = "resources.memory_gb above 8 for a larger machine"


def config_of(kind, **given):
    return KINDS[kind].parse_config(given).model_dump(mode="json")


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (
            "training",
            {"recipe": "digits", "batch_size": 64},
            [
                "batch_size 32 instead of 64",
                "gradient_accumulation 2 with it, for as many examples per update",
            ],
        ),
        ("training", {"recipe": "digits", "batch_size": 1}, []),
        (
            "loop",
            {
                "recipe": "image_folders",
                "parameters": {"directory": "ds_0123456789abcdef", "num_workers": 5},
            },
            [
                "parameters.batch_size 16 instead of 32",
                "parameters.num_workers 2 instead of 5",
            ],
        ),
        (
            "loop",
            {"recipe": "digit_classifier"},
            [
                "parameters.batch_size 16 instead of 32",
                "parameters.accumulation 2 with it, for as many examples per update",
                "parameters.precision bf16 instead of fp32",
            ],
        ),
    ],
)
def test_remedies_name_fields_that_the_config_has(kind, given, expected):
    config = config_of(kind, **given)
    assert remedies(config, USE, is_gpu=False) == [*expected, LARGER]
    on_gpu = remedies(config, USE, is_gpu=True)
    assert on_gpu == [*expected, "resources.gpu_memory_gb for a larger GPU"]


def test_checkpointing_of_activations_is_named_where_it_is_off():
    config = {"parameters": {"a": {"gradient_checkpointing": False}, "batch_size": None}}
    assert remedies(config, USE, is_gpu=False)[:-1] == ["parameters.a.gradient_checkpointing true"]
    config["parameters"]["a"]["gradient_checkpointing"] = True
    assert remedies(config, USE, is_gpu=False)[:-1] == []


def test_other_outcomes_are_left_as_they_are():
    for outcome in (
        Interrupted(Reason.PROCESS_KILLED, "its process ended by SIGKILL"),
        Cancelled(Reason.KILLED_BY_PERSON, "killed"),
    ):
        assert explained(outcome, USE, {"batch_size": 2}) is outcome


def test_a_sample_waits_for_its_time_and_keeps_the_extremes(monkeypatch):
    moment, peaks, free = 0.0, [5, 9, 7], [50, 20, 40]
    monkeypatch.setattr(memory.time, "monotonic", lambda: moment + 1)
    monkeypatch.setattr(memory, "_peak_of", lambda pid: peaks.pop(0))
    monkeypatch.setattr(memory, "processes_of", lambda pid: [SimpleNamespace(pid=pid)])
    monkeypatch.setattr(memory, "machine_memory", lambda: (100, free.pop(0)))
    use = MemoryUse(1)
    for moment in (0.0, 0.2, 0.25, 0.5):  # noqa: B007 - read by the clock
        use.sample()
    assert (use.peak, use.free, use.total, peaks) == (9, 20, 100, [])


def test_the_peak_is_that_of_the_largest_descendant(monkeypatch):
    """Such as another rank, or a worker process of a loader."""
    moment = 0.0
    monkeypatch.setattr(memory.time, "monotonic", lambda: moment)
    use = MemoryUse(os.getpid())
    use.sample()
    own = use.peak
    assert own > 0
    code = f"import sys; held = b'x' * {own}; print('held', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(["sh", "-c", f'"{sys.executable}" -c "{code}"; true'], **pipes) as child:
        assert child.stdout.readline() == "held\n"
        moment = memory.DESCENDANTS_SECONDS
        use.sample()
    assert own < use.peak < own + 1e8
    assert str(use).startswith("peak resident memory of its largest process ")


@pytest.mark.parametrize(("limit", "expected"), [("1000", (1000, 600)), ("max", None)])
def test_the_memory_of_a_container_is_its_limit(monkeypatch, tmp_path, limit, expected):
    machine = SimpleNamespace(total=5000, available=4000)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: machine)
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300\nfile 400\n")
    assert memory.machine_memory() == (expected or (5000, 4000))


def test_an_exhausted_gpu_has_its_figures(monkeypatch):
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        max_memory_allocated=lambda: 70_000_000_000,
        max_memory_reserved=lambda: 75_500_000_000,
        mem_get_info=lambda: (1_000_000_000, 80_000_000_000),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    error = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory.")
    message = failure_message(error)
    assert message == (
        "OutOfMemoryError: CUDA out of memory.; GPU memory: peak 70 GB allocated, "
        "75.5 GB reserved; 1 GB of 80 GB free"
    )
    outcome = explained(Interrupted(Reason.OUT_OF_MEMORY, message), USE, {})
    assert outcome.note.endswith("to try: resources.gpu_memory_gb for a larger GPU)")
    assert failure_message(MemoryError()) == "MemoryError"
    assert failure_message(ValueError("GPU")) == "ValueError: GPU"


def test_torch_without_memory_for_a_tensor_is_out_of_memory():
    import torch

    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.int8)
    assert reason_code(raised.value) == "OUT_OF_MEMORY"


def peak_bytes(operation):
    found = re.search(
        r"peak resident memory of its largest process ([\d.]+) GB, least free [\d.]+ GB of",
        operation,
    )
    return float(found[1]) * 1e9


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_an_operation_without_memory_tells_its_peak_and_what_to_try(runtime):
    operation = run(runtime, submit("fill", at=3))
    assert (operation.state, operation.reason) == ("RESUMING", Reason.OUT_OF_MEMORY)
    message, log = (
        operation.error["message"],
        "".join(LogChunk.objects.values_list("text", flat=True)),
    )
    assert message.startswith(
        "MemoryError: 100000000 numbers were too many (peak resident memory of "
    )
    assert "batch_size 8 instead of 16" in message
    printed = int(re.search(r"peak bytes: (\d+)", log)[1])
    assert abs(peak_bytes(message) - printed) < 0.02e9
    assert "scripted_model.py" in operation.error["traceback"]
    assert operation.attempts.get().note == message


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_process_that_the_kernel_killed_tells_the_peak_that_was_sampled(runtime, monkeypatch):
    numbers = iter([7])
    monkeypatch.setattr(outcomes, "_num_oom_kills", lambda: next(numbers, 8))
    operation = run(runtime, submit("fill_and_kill", at=3))
    assert operation.reason == Reason.OUT_OF_MEMORY
    message = operation.error["message"]
    assert message.startswith(
        "its process ended by SIGKILL; the kernel killed processes for memory "
    )
    assert peak_bytes(message) > 0.4e9
    assert "batch_size 8 instead of 16" in message
