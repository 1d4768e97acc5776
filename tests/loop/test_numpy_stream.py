"""NumPy's global stream is the same after a block that draws from it or seeds it."""

import random

import numpy as np
import pytest
from numpy.random import MT19937, PCG64

from trainops.kinds.loop import numpy_stream
from trainops.kinds.loop.numpy_stream import numpy_restored

DRAWS = {
    "uniform": lambda: np.random.rand(3),
    "one normal": lambda: np.random.randn(),
    "two normals": lambda: np.random.randn(2),
    "integers": lambda: np.random.randint(100, size=2),
    "beta": lambda: np.random.beta(0.2, 0.2),
    "shuffle": lambda: np.random.permutation(5),
    "seed": lambda: np.random.seed(3),
}


@pytest.fixture(autouse=True)
def stream():
    """Have a global stream, and put back that of the tests."""
    state, generator = np.random.get_state(), np.random.get_bit_generator()
    np.random.seed(7)
    yield
    np.random.set_bit_generator(generator)
    np.random.set_state(state)


@pytest.fixture(params=["quick", "layout unknown", "other generator"])
def way(request, monkeypatch):
    if request.param == "layout unknown":
        monkeypatch.setattr(numpy_stream, "is_layout_known", lambda: False)
    if request.param == "other generator":
        np.random.set_bit_generator(PCG64(5))
    return request.param


def state():
    found = np.random.get_state(legacy=False)
    inner = {name: np.asarray(value).tolist() for name, value in found["state"].items()}
    return found | {"state": inner}


def test_the_state_in_memory_is_as_expected():
    assert numpy_stream.is_layout_known()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_drawn_within_a_block_changes_nothing_after_it(way, seed):
    drawn = random.Random(seed)
    names = [name for name in DRAWS if name != "seed" or way != "other generator"]
    for _ in range(10):
        for name in drawn.choices(names, k=drawn.randint(0, 3)):
            DRAWS[name]()
        before = state()
        with numpy_restored():
            for name in drawn.choices(names, k=drawn.randint(0, 3)):
                DRAWS[name]()
        assert state() == before


@pytest.mark.parametrize("name", [each for each in DRAWS if each != "seed"])
def test_a_seed_within_a_block_starts_the_stream_that_it_starts_elsewhere(name):
    np.random.seed(9)
    expected = DRAWS[name]()
    np.random.randn()  # whose second number is still to come
    with numpy_restored():
        np.random.seed(9)
        assert np.array_equal(DRAWS[name](), expected)


def test_a_normal_number_of_a_block_does_not_come_after_it():
    with numpy_restored():
        np.random.randn()
    assert state()["has_gauss"] == 0


def test_blocks_may_be_nested_and_left_by_an_error():
    np.random.randn()
    before = state()
    with pytest.raises(ValueError), numpy_restored():
        np.random.seed(1)
        np.random.rand()
        within = state()
        with numpy_restored():
            np.random.seed(2)
            np.random.randn()
        assert state() == within
        raise ValueError
    assert state() == before


def test_the_generator_is_that_of_before():
    own = np.random.get_bit_generator()
    with numpy_restored():
        assert type(np.random.get_bit_generator()) is MT19937
    assert np.random.get_bit_generator() is own
