"""NumPy's global stream is put aside and back within microseconds.

`np.random.get_state` and `set_state` take 0.1 ms and more each, since they copy the 624 words of a
state one by one in Python. Here another generator takes the place of the global one meanwhile, so
that nothing has to be copied. What else belongs to the stream is the second of two normal numbers,
which are drawn in pairs; NumPy forgets it when the generators are exchanged.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
from numpy.random import MT19937, BitGenerator
from numpy.random.mtrand import get_bit_generator, set_bit_generator

NUM_BYTES = 624 * 4 + 4  # of a state in memory: its words, and the position in them
_other = MT19937(0)


@contextmanager
def numpy_restored() -> Iterator[None]:
    """Put NumPy's global stream back after the block. It begins anywhere: seed it in the block."""
    own = get_bit_generator()
    if _can_exchange(own):
        set_bit_generator(_other)
        try:
            yield
        finally:
            set_bit_generator(own)
        return
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _can_exchange(own: BitGenerator) -> bool:
    is_usual = isinstance(own, MT19937) and own is not _other  # it is in a block within a block
    return is_usual and is_layout_known() and not _has_normal(own.ctypes.state_address)


def _has_normal(address: int) -> bool:
    """Whether the second number of a pair is still to come; the stream stays as it is.

    Only then the next normal number is drawn without a change of the generator.
    """
    memory = ctypes.string_at(address, NUM_BYTES)
    number = np.random.standard_normal()  # noqa: NPY002
    if ctypes.string_at(address, NUM_BYTES) != memory:
        ctypes.memmove(address, memory, NUM_BYTES)
        return False  # that number has a second one, too, which the exchange forgets
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    np.random.set_state({**state, "has_gauss": 1, "gauss": number})  # noqa: NPY002
    return True


@cache
def is_layout_known() -> bool:
    """Whether this version of NumPy has states in memory as it is expected here."""
    generator = MT19937(1)
    state = generator.state["state"]
    expected = state["key"].tobytes() + int(state["pos"]).to_bytes(4, sys.byteorder)
    return ctypes.string_at(generator.ctypes.state_address, NUM_BYTES) == expected
