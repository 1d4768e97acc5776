"""Damaged files: every byte changed, every end cut off, and whatever hypothesis thinks of.

What comes out is a FormatError, or exactly what the undamaged file means: an archive has bytes that
mean nothing.
"""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.conftest import Run, parse
from tests.formats.originals import (
    ALL,
    NAMES,
    key_tree,
    original,
    pickle_in,
    save,
    tree,
    with_pickle,
)
from trainops.files.differences import differences
from trainops.files.errors import DamagedFile, FormatError
from trainops.files.foreign import load, opened, outline_in
from trainops.files.known import format_of
from trainops.files.reading import read
from trainops.files.show import show
from trainops.files.verify import verify
from trainops.kinds.training.files.exchange import read_training
from trainops.kinds.training.files.importing import import_training
from trainops.runtime.errors import IncompatibleState


@pytest.fixture
def small(tmp_path):
    """A training file of a few kilobytes, which can be read thousands of times."""
    content = {
        "format_version": 1, "epoch": 0, "global_step": 2, "save_timestamp": 1.5,
        "model_state_dict": {"weight": torch.arange(6.0), "count": torch.tensor(3)},
        "metrics": {"loss": 0.25},
    }  # fmt: skip
    return save(content, tmp_path / "small.pt")


def loaded(path):
    with opened(path) as content:
        return load(content, outline_in(content))


def is_harmless(path, before):
    """Whether the damaged file is refused, or means what it meant before."""
    try:
        return equal(loaded(path), before)
    except FormatError:
        return True


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return one == other and type(one) is type(other)


EVERY = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 19])


@pytest.mark.slow
@EVERY
def test_every_flipped_byte_is_found_or_means_nothing(small, step):
    content, before = small.read_bytes(), loaded(small)
    num_found = 0
    for position in range(0, len(content), step):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        small.write_bytes(damaged)
        assert is_harmless(small, before), position
        num_found += not verify(small).passed
    assert num_found > 0.5 * len(content) / step


@pytest.mark.slow
@EVERY
def test_every_flipped_byte_of_a_pickle_whose_checksum_was_mended_is_survived(small, step):
    """What is read may then be something else; nothing but a FormatError is ever raised."""
    pickled = pickle_in(small)
    for position in range(0, len(pickled), step):
        for bit in (1, 0x40, 0xFF):
            damaged = bytearray(pickled)
            damaged[position] ^= bit
            survive(with_pickle(small, bytes(damaged)))


@pytest.mark.parametrize("source", ALL, ids=str)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 0.9999])
def test_a_truncated_file_is_damaged(tmp_path, source, share):
    path = original(source, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DamagedFile) as caught:
        read(path)
    assert ("empty" if not share else "missing") in str(caught.value)
    assert [check.passed for check in verify(path).checks] == [True, False]


@pytest.mark.parametrize("source", ALL, ids=str)
def test_a_flipped_bit_in_each_kind_of_place_is_found(tmp_path, source):
    path = original(source, tmp_path)
    content = path.read_bytes()
    places = {
        "first header": 1,
        "pickle": content.index(b"\x80\x02}") + 40,
        "storage": len(content) // 2,
        "directory": content.index(b"PK\x01\x02") + 17,  # the checksum of the first record
        "end": len(content) - 20,
    }
    for place, position in places.items():
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        assert not verify(path).passed, place


def test_files_that_were_swapped_are_found_where_there_is_a_digest(tmp_path):
    path = original("rl", tmp_path)
    (tmp_path / "rl.pt.sha256").write_text("0" * 64)
    assert not verify(path).passed


def survive(path):
    """Look at a file in every way; only FormatErrors may come out."""
    report = verify(path)
    try:
        file = read(path)
    except FormatError:
        assert not report.passed
    else:
        assert report.passed and key_tree(format_of(file).to_tree(file))
    try:
        show(path)
        differences(path, path)
    except FormatError:
        pass


def mutated(content, changes):
    damaged = bytearray(content)
    for kind, share, value, length in changes:
        at = int(share * len(damaged))
        match kind:
            case "flip" if damaged:
                damaged[min(at, len(damaged) - 1)] ^= value
            case "overwrite":
                damaged[at : at + length] = bytes([value]) * length
            case "insert":
                damaged[at:at] = bytes([value]) * length
            case "delete":
                del damaged[at : at + length]
            case "repeat":
                damaged[at:at] = damaged[at : at + length]
            case "cut":
                del damaged[at:]
    return bytes(damaged)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "overwrite", "insert", "delete", "repeat", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 255),
        st.integers(1, 64),
    ),
    min_size=1,
    max_size=6,
)
FUZZ = {
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    "derandomize": True,
    "deadline": 5000,  # ms: nothing may hang
}


def fuzz(path, sources, changes, in_pickle):
    source = original(sources, path)
    if in_pickle:
        with_pickle(source, mutated(pickle_in(source), changes))
    else:
        source.write_bytes(mutated(source.read_bytes(), changes))
    survive(source)


@pytest.mark.slow
@settings(max_examples=40, **FUZZ)
@given(source=st.sampled_from(NAMES), changes=CHANGES, in_pickle=st.booleans())
def test_no_mutation_gets_anything_but_a_format_error_out(tmp_path, source, changes, in_pickle):
    fuzz(tmp_path, source, changes, in_pickle)


@pytest.mark.slow
@pytest.mark.exhaustive
@settings(max_examples=2000, **FUZZ)
@given(source=st.sampled_from(ALL), changes=CHANGES, in_pickle=st.booleans())
def test_no_mutation_of_thousands_does(tmp_path, source, changes, in_pickle):
    fuzz(tmp_path, source, changes, in_pickle)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**2000, -(2**2000), 2**63, 1e308, -0.0])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["2.0", "in_progress", "completed", "0", 0, 1, 3, -1, torch.zeros(2, 3)])
    | st.builds(lambda: torch.full((2,), float("nan"))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6) | st.integers(0, 3), inner)
    ),
    max_leaves=6,
)


def places(value, place=()):
    """Yield the path to every value in a tree."""
    yield place
    pairs = value.items() if isinstance(value, dict) else []
    pairs = enumerate(value[:4]) if isinstance(value, list) else pairs
    for key, each in pairs:
        yield from places(each, (*place, key))


PLACES = {name: [place for place in places(tree(name)) if place] for name in NAMES}


@st.composite
def replaced(draw, names=NAMES):
    """One of the originals with a value somewhere taken away or replaced by another."""
    name = draw(st.sampled_from(names))
    content = tree(name)
    for place in draw(st.lists(st.sampled_from(PLACES[name]), min_size=1, max_size=3)):
        holder = content
        try:
            for key in place[:-1]:
                holder = holder[key]
            if draw(st.booleans()):
                holder[place[-1]] = draw(VALUES)
            else:
                del holder[place[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # another change took that place away
    return content


@pytest.mark.slow
@settings(max_examples=25, **FUZZ)
@given(content=replaced())
def test_no_value_in_a_wrong_place_gets_anything_but_a_format_error_out(tmp_path, content):
    survive(save(content, tmp_path / "file.pt"))


@pytest.mark.slow
@pytest.mark.exhaustive
@settings(max_examples=500, **FUZZ)
@given(content=replaced())
def test_no_value_of_thousands_does(tmp_path, content):
    survive(save(content, tmp_path / "file.pt"))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("foreign")
@settings(max_examples=300, **FUZZ)
@given(content=replaced(("training",)))
def test_what_can_be_read_can_be_imported_or_is_refused(tmp_path, content):
    """And what was imported can be trained on."""
    try:
        file = read_training(save(content, tmp_path / "file.pt"))
        imported = import_training(file, parse())
    except (FormatError, IncompatibleState):
        return
    assert imported.step in (0, 25)
    Run(parse()).load(imported.state).until(imported.step + 2)
