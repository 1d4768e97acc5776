import random

import numpy as np
import pytest
import torch

from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState


def draw():
    return (
        random.random(),  # noqa: S311
        np.random.standard_normal(),  # noqa: NPY002
        torch.rand(1).item(),
    )


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_a_seed_starts_every_stream(seed):
    reproducibility.seed_all(seed)
    first = draw()
    draw()
    reproducibility.seed_all(seed)
    assert draw() == first


def test_every_stream_continues_where_it_was():
    reproducibility.seed_all(1)
    draw()  # an odd number of normal draws: NumPy keeps the second one back
    state = freeze(reproducibility.state_dict())
    expected = [draw() for _ in range(3)]
    reproducibility.seed_all(2)
    restored = reproducibility.load_state_dict(state)
    assert [draw() for _ in range(3)] == expected
    assert restored == reproducibility.STREAMS


def test_a_state_without_a_stream_changes_nothing():
    reproducibility.seed_all(1)
    state = reproducibility.state_dict()
    before = freeze(reproducibility.state_dict())
    draw_was = draw()
    for name in reproducibility.STREAMS:
        broken = {key: each for key, each in state.items() if key != name}
        with pytest.raises(IncompatibleState):
            reproducibility.load_state_dict(broken)
    reproducibility.load_state_dict(before)
    assert draw() == draw_was


def test_streams_of_devices_that_are_not_here_are_not_restored():
    state = freeze(reproducibility.state_dict()) | {"cuda": [torch.get_rng_state()] * 99}
    assert reproducibility.load_state_dict(state) == ("python", "numpy", "torch")


def test_the_environment_says_what_decides_the_last_bits():
    environment = reproducibility.environment()
    assert environment["deterministic"] is True
    assert environment["device_type"] == ("cuda" if torch.cuda.is_initialized() else "cpu")
    assert environment["threads"] == torch.get_num_threads()
    assert environment["processor"] == reproducibility.processor() != ""


X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 207
model name\t: Intel(R) Xeon(R) Processor
stepping\t: {stepping}
cpu MHz\t\t: {mhz}

processor\t: 1
model\t\t: 999
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


@pytest.fixture
def processor_of(tmp_path, monkeypatch):
    def named(text):
        path = tmp_path / "cpuinfo"
        path.write_text(text)
        monkeypatch.setattr(reproducibility, "CPUINFO", path)
        return reproducibility.processor.__wrapped__()

    return named


def test_processors_of_one_model_are_the_same_and_others_are_not(processor_of):
    one = processor_of(X86.format(stepping=2, mhz=2000))
    assert one == "Intel(R) Xeon(R) Processor, GenuineIntel 6 207 2"
    assert processor_of(X86.format(stepping=2, mhz=3100.5)) == one
    assert processor_of(X86.format(stepping=3, mhz=2000)) != one
    assert processor_of(ARM).endswith(", 0x41 0xd0c")


def test_a_processor_that_says_nothing_of_itself_is_the_machines_kind(monkeypatch, tmp_path):
    monkeypatch.setattr(reproducibility, "CPUINFO", tmp_path / "nothing")
    assert reproducibility.processor.__wrapped__()
