import random

import numpy as np
import pytest
import torch

from trainops.engines import reproducibility
from trainops.engines.errors import IncompatibleState
from trainops.engines.snapshot import freeze


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


def test_every_stream_goes_on_where_it_was():
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
    assert environment["device_type"] == "cpu" and environment["deterministic"] is True
    assert environment["threads"] == torch.get_num_threads()
