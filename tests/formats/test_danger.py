"""Whatever a file asks for, nothing in it is executed and nothing made that it does not hold."""

import enum
import os
import pickle
import pickletools
import signal
import struct
import sys
import time
import zipfile
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.formats.originals import (
    NAMES,
    original,
    pickle_in,
    records,
    save,
    tree,
    with_pickle,
    write_records,
)
from tests.malicious.files import end_64, parts_of
from trainops.files import foreign
from trainops.files.errors import (
    DamagedFile,
    FileTooLarge,
    ForbiddenContent,
    FormatError,
    InvalidFields,
)
from trainops.files.pickled import INSTRUCTIONS
from trainops.files.reading import read
from trainops.files.show import show
from trainops.files.verify import verify


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return (os.mkdir, (str(self.proof),))


class Sleeper:
    """Makes a directory when its state is taken over."""

    def __init__(self, proof):
        self.proof = proof

    def __setstate__(self, state):
        state["proof"].mkdir()


@pytest.fixture
def proof(tmp_path):
    """A directory that must not come into being."""
    path = tmp_path / "executed"
    yield path
    assert not path.exists()


@pytest.fixture
def never_loaded(monkeypatch):
    """What is refused is refused before torch sees it."""

    def load(*args, **kwargs):
        raise AssertionError("the file reached torch")

    monkeypatch.setattr(foreign.torch, "load", load)


def look(path):
    """Look at a file in every way there is, and return how reading it fails."""
    assert not verify(path).passed
    with pytest.raises(FormatError):
        show(path)
    with pytest.raises(FormatError) as caught:
        read(path)
    return caught.value


def pickled(path, content):
    """A file whose pickle is these bytes; the archive around it is whole."""
    return with_pickle(save({"model_state_dict": {}}, path / "file.pt"), content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["top", "value", "list", "deep"])
def test_a_malicious_pickle_is_refused_naming_what_it_wanted(
    tmp_path, proof, never_loaded, name, where
):
    value = {
        "top": Bomb(proof),
        "value": tree(name) | {"extra": Bomb(proof)},
        "list": tree(name) | {"extra": [1, [2, {"x": (Bomb(proof),)}]]},
        "deep": tree(name) | {"config": {"a": {"b": Bomb(proof)}}},
    }[where]
    error = look(save(value, tmp_path / "file.pt"))
    assert isinstance(error, ForbiddenContent) and error.needed == "posix.mkdir"


def test_a_state_that_acts_when_it_is_taken_over(tmp_path, proof, never_loaded):
    error = look(save({"model_state_dict": {}, "x": Sleeper(proof)}, tmp_path / "file.pt"))
    assert "tests.formats.test_danger.Sleeper" in str(error)


@pytest.mark.parametrize("protocol", range(6))
def test_a_bare_pickle_is_no_archive(tmp_path, proof, never_loaded, protocol):
    path = tmp_path / "file.pt"
    path.write_bytes(pickle.dumps({"model_state_dict": Bomb(proof)}, protocol))
    assert isinstance(look(path), DamagedFile)
    torch.save({"x": Bomb(proof)}, path, _use_new_zipfile_serialization=False)
    assert isinstance(look(path), DamagedFile)


@pytest.mark.parametrize("protocol", [0, 1, 3, 4, 5])
def test_other_protocols_are_not_followed(tmp_path, proof, never_loaded, protocol):
    look(pickled(tmp_path, pickle.dumps({"model_state_dict": Bomb(proof)}, protocol)))


@pytest.mark.parametrize(
    "name",
    [
        "os system", "posix system", "builtins eval", "__builtin__ eval", "builtins getattr",
        "builtins bytearray", "builtins __import__", "subprocess Popen", "torch load",
        "torch.hub load", "torch Tensor", "torch.storage _load_from_bytes", "numpy load",
        "numpy.core.multiarray fromfile", "numpy._core.multiarray frombuffer",
        "numpy.testing._private.utils runstring", "torch._utils _rebuild_sparse_tensor",
        "torch._tensor _rebuild_from_type_v2", "collections Counter", "copyreg _reconstructor",
        "signal pthread_kill", "signal Signals.__init__", "model_training_framework", "\x1b[2J x",
        "torch nn", "numpy dtype.newbyteorder", "functools partial", "types CodeType",
    ],
)  # fmt: skip
def test_a_name_off_the_list_is_refused_and_named(tmp_path, never_loaded, name):
    module, _, attribute = name.partition(" ")
    content = f"c{module}\n{attribute}\n".encode()
    error = look(pickled(tmp_path, b"\x80\x02}X\x01\x00\x00\x00x" + content + b")Rs."))
    assert isinstance(error, ForbiddenContent)
    assert "\x1b" not in str(error)
    if "\x1b" not in name:
        assert f"{module}.{attribute}" in str(error)


FUNCTIONS = (
    "collections\nOrderedDict", "torch._utils\n_rebuild_tensor_v2", "numpy\ndtype",
    "torch._utils\n_rebuild_parameter", "_codecs\nencode", "numpy\nndarray",
    "numpy._core.multiarray\n_reconstruct", "numpy.core.multiarray\nscalar", "torch\nFloatStorage",
)  # fmt: skip
A_TYPE = b"X\x02\x00\x00\x00f4\x89\x88\x87"  # the arguments of numpy.dtype
ARGUMENTS = (A_TYPE, b"K\x01\x85", b")", b"}", b"N", b"(K\x01K\x02K\x03K\x04K\x05K\x06t")
PROPER = {("collections\nOrderedDict", b")"), ("numpy\ndtype", A_TYPE)}


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(f, a) for f in FUNCTIONS for a in ARGUMENTS if (f, a) not in PROPER],
)
def test_an_allowed_name_is_called_as_always_or_not_at_all(
    tmp_path, never_loaded, function, arguments
):
    content = b"\x80\x02}X\x01\x00\x00\x00xc" + function.encode() + b"\n" + arguments + b"Rs."
    assert isinstance(look(pickled(tmp_path, content)), DamagedFile)


@pytest.mark.parametrize("code", ["O", "V8", "M8", "c16", "f2", "S4", "U1", "i8,f4", "f16", "<f4"])
def test_a_numpy_type_off_the_list_is_refused_and_named(tmp_path, never_loaded, code):
    name = struct.pack("<I", len(code)) + code.encode()
    content = b"\x80\x02}X\x01\x00\x00\x00xcnumpy\ndtype\nX" + name + b"\x89\x88\x87Rs."
    error = look(pickled(tmp_path, content))
    assert isinstance(error, ForbiddenContent) and repr(code) in str(error)


def test_arrays_of_objects_and_of_big_endian_numbers_are_refused(tmp_path):
    for array in (np.array([None]), np.arange(3, dtype=">f4"), np.array(["a"])):
        with pytest.raises(FormatError):
            read(save({"model_state_dict": {}, "x": array}, tmp_path / "file.pt"))


def test_pickles_in_hex_are_never_unpickled(tmp_path, proof):
    """The other tool keeps its random streams so; what is in them stays there."""
    content = tree("training")
    for place, name in (("rng", "torch_state"), ("rng", "numpy_state"), ("choice_rng", "state")):
        content["resume_state"][place][name] = pickle.dumps(Bomb(proof)).hex()
    path = save(content, tmp_path / "file.pt")
    assert verify(path).passed and show(path)
    assert read(path).resume_state.phase == "SCHEDULER_BATCH_STEP"


@pytest.mark.parametrize(
    "content",
    [
        b"", b".", b"\x80\x02", b"\x80\x02.", b"\x80\x02N", b"\x80\x02NN.", b"\x80\x02(N.",
        b"\x80\x020.", b"\x80\x02h\x00.", b"\x80\x02R.", b"\x80\x02b.", b"\x80\x02Q.",
        b"\x80\x02K\x01K\x02R.", b"\x80\x02}N.a.", b"\x80\x02]}a.N", b"\x80\x02}K\x01s.",
        b"\x80\x02}}}s.", b"\x80\x02})K\x01s.", b"\x80\x02}NK\x01s.", b"\x80\x02t.", b"\x80\x02e.",
        b"\x80\x02]K\x01e.", b"\x80\x02X\xff\xff\xff\xff.",
        b"\x80\x02X\x03\x00\x00\x00\xed\xa0\x80.", b"\x80\x02X\x01\x00\x00\x00\xff.",
        b"\x80\x02(K\x01i os\nsystem\n.", b"\x80\x02Pstorage\n.", b"\x80\x02\x82\x01.",
        b"\x80\x02ctorch\nFloatStorage\n.", b"\x80\x02cnumpy\nndarray\n.", b"\x80\x02cxx",
        b"\x80\x02}(K\x01u.", b"\x80\x02\x8a\xff.", b"\x80\x02q\x00.", b"\x80\x02K\x01b.",
        b"\x80\x02(XX\x07\x00\x00\x00storageK\x01tQ.", b"\x80\x02\x85.", b"\x80\x02K\x01\x87.",
        b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00f4\x89\x88\x87R.",
        b"\x80\x02ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb.",
        b"\x80\x02}" + b"\x8a\xff" + b"\x7f" * 255 + b"Ns.",
    ],
)  # fmt: skip
def test_a_pickle_that_makes_no_sense_is_damage(tmp_path, never_loaded, content):
    assert isinstance(look(pickled(tmp_path, content)), FormatError)


def quick(path):
    """Return how reading fails, which must not take long."""
    began = time.process_time()
    error = look(path)
    assert time.process_time() - began < 5
    return error


def test_a_compressed_record_is_refused_before_it_is_unpacked(tmp_path, never_loaded):
    path = original("training", tmp_path)
    content = records(path)
    packed = {name: b"\0" * 2**24 if name.endswith("/data/0") else c for name, c in content.items()}
    write_records(path, packed, compression=zipfile.ZIP_DEFLATED)
    assert isinstance(quick(path), FileTooLarge)


def test_a_record_that_lies_within_another_is_refused(tmp_path, never_loaded):
    """Nested often enough, records unfold to the square of the file."""

    def header(name, content):
        crc, size = zlib.crc32(content), len(content)
        return (
            struct.pack("<4s5H3I2H", b"PK\x03\x04", 0, 0, 0, 0, 0, crc, size, size, len(name), 0)
            + name
        )

    def entry(name, content, at):
        crc, size = zlib.crc32(content), len(content)
        numbers = (0, 0, 0, 0, 0, 0, crc, size, size, len(name), 0, 0, 0, 0, 0, at)
        return struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *numbers) + name

    pickled, inner = b"\x80\x02}.", b"\0" * 100_000
    outer = header(b"r/data/1", inner) + inner
    first = header(b"r/data.pkl", pickled) + pickled
    second = header(b"r/data/0", outer)
    entries = entry(b"r/data.pkl", pickled, 0) + entry(b"r/data/0", outer, len(first))
    entries += entry(b"r/data/1", inner, len(first) + len(second))
    content = first + second + outer + entries
    end = struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, 3, 3, len(entries), len(content) - len(entries), 0
    )
    path = tmp_path / "file.pt"
    path.write_bytes(content + end)
    assert "between the records" in str(quick(path))


@pytest.mark.parametrize("is_shown_first", [True, False])
@pytest.mark.parametrize("pointer", [0, -56])
def test_an_archive_with_two_directories_is_refused(
    tmp_path, proof, never_loaded, is_shown_first, pointer
):
    """Python before CVE-2025-8291 was fixed reads the one before the end, torch the other."""
    shown, its_directory = parts_of(original("training", tmp_path), at=0)
    bomb = save({"model_state_dict": {"x": Bomb(proof)}}, tmp_path / "hidden.pt")
    hidden, other_directory = parts_of(bomb, at=len(shown))
    directories = [other_directory, its_directory]
    content = shown + hidden
    for directory in directories if is_shown_first else reversed(directories):
        content += directory + end_64(directory, len(content))
        first_end = content.index(b"PK\x06\x06")
    content += struct.pack("<4sIQI", b"PK\x06\x07", 0, first_end + pointer, 1)
    content += struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, *[2**16 - 1] * 2, *[2**32 - 1] * 2, 0)
    path = tmp_path / "file.pt"
    path.write_bytes(content)
    assert "elsewhere" in str(look(path))


def test_a_record_that_is_there_twice_is_refused(tmp_path, never_loaded):
    """Two readers could take different ones of them."""
    path = original("training", tmp_path)
    content = list(records(path).items())
    with pytest.warns(UserWarning, match="Duplicate"):
        write_records(path, [*content, content[0]])
    assert "twice" in str(look(path))


def shaped(tmp_path, *, numel=6, offset=0, shape=(2, 3), stride=(3, 1), key="0"):
    """A file with one tensor of six values, declared as given."""

    def number(value):
        return b"\x8a" + bytes([n := (value.bit_length() // 8 + 1)]) + value.to_bytes(n, "little")

    def sizes(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu")
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage[1:] + number(numel) + b"tQ"
    tensor += number(offset) + sizes(shape) + sizes(stride) + b"\x89ccollections\nOrderedDict\n)RtR"
    path = save({"w": torch.arange(6.0)}, tmp_path / "file.pt")
    return with_pickle(
        path, b"\x80\x02}" + text("model_state_dict") + b"}" + text("w") + tensor + b"ss."
    )


def test_a_tensor_within_its_storage_is_read(tmp_path):
    assert any(line.key == "w" and line.shape == "2 x 3" for line in show(shaped(tmp_path)))


@pytest.mark.parametrize(
    "declared",
    [
        {"numel": 10**12},
        {"numel": 5},
        {"key": "7"},
        {"key": "../data/0"},
        {"shape": (10**6, 10**6)},
        {"shape": (2**62, 4), "stride": (0, 0)},
        {"shape": (10**9,), "stride": (0,)},
        {"shape": (2, 3), "stride": (4, 1)},
        {"shape": (2, 3), "stride": (2**62, 1)},
        {"shape": (2,), "stride": (3, 1)},
        {"offset": 1},
        {"shape": (1,) * 100, "stride": (1,) * 100},
        {"shape": (0, 10**18), "stride": (2**62, 2**62), "offset": 7 * 10**17},
    ],
)
def test_a_tensor_that_its_storage_does_not_hold_is_refused(tmp_path, never_loaded, declared):
    assert isinstance(quick(shaped(tmp_path, **declared)), FileTooLarge | DamagedFile)


def test_lists_that_double_are_refused(tmp_path, never_loaded):
    content = b"\x80\x02]q\x00" + b"".join(
        b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(50)
    )
    assert isinstance(
        quick(pickled(tmp_path, b"\x80\x02}" + b"K\x01" + content[2:] + b"s.")), FormatError
    )


def test_a_list_within_itself_is_refused(tmp_path, never_loaded):
    assert isinstance(quick(pickled(tmp_path, b"\x80\x02]q\x00h\x00a.")), FileTooLarge)


@pytest.mark.slow
def test_values_nested_too_deep_are_refused(tmp_path, never_loaded):
    for deep in (b")" + b"\x85" * 100_000, b"]" * 100_000 + b"a" * 99_999):
        assert isinstance(quick(pickled(tmp_path, b"\x80\x02" + deep + b".")), FileTooLarge)


def test_many_views_of_one_storage_are_refused(tmp_path, never_loaded):
    weight = torch.zeros(100_000)
    path = save({"model_state_dict": [weight[:] for _ in range(5_000)]}, tmp_path / "file.pt")
    assert isinstance(quick(path), FileTooLarge)


@pytest.mark.parametrize(
    "name",
    [
        "../../evil", "/etc/evil", "{root}/../evil", "{root}/data/../../evil",
        "{root}/constants.pkl", "{root}/code/__torch__.py", "{root}/data/x", "{root}/data/0 ",
        "other/data/0", "evil", "{root}/", "{root}//data/9",
        "{root}\\data\\9",
    ],
)  # fmt: skip
def test_a_record_that_torch_never_writes_is_refused(tmp_path, never_loaded, name):
    path = original("training", tmp_path)
    content = list(records(path).items())
    root = content[0][0].split("/")[0]
    write_records(path, [*content, (name.format(root=root), b"x")])
    assert isinstance(look(path), DamagedFile)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["before", "after", "comment"])
def test_something_beside_the_records_is_refused(tmp_path, never_loaded, place):
    path = original("training", tmp_path)
    content = path.read_bytes()
    match place:
        case "before":
            path.write_bytes(content[:30] + content)
        case "after":
            path.write_bytes(content + content[-22:])
        case "comment":
            path.write_bytes(content[:-2] + b"\x16\x00" + content[-22:])
    look(path)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        assert not verify(path).passed
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "nothing")


def test_numbers_of_a_big_endian_machine_are_refused(tmp_path):
    path = original("training", tmp_path)
    content = {n: b"big" if n.endswith("/byteorder") else c for n, c in records(path).items()}
    assert "little-endian" in str(look(write_records(path, content)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_poisoned_numbers_are_found_and_counted(tmp_path, name, value):
    content = tree(name)
    holder, key, place = {
        "training": (lambda c: c["model_state_dict"], "fc1.weight", "model_state_dict.fc1.weight"),
        "rl": (
            lambda c: c["population_state"]["replay_buffer"],
            "observations",
            "population_state.replay_buffer.observations",
        ),
    }.get(name, (lambda c: c["server"]["parameters"], 2, "server.parameters[2]"))
    poisoned = holder(content)[key]
    poisoned.flatten()[0] = value if isinstance(poisoned, torch.Tensor) else 0
    if isinstance(poisoned, np.ndarray):
        holder(content)[key] = np.full_like(poisoned, value)
    path = save(content, tmp_path / "file.pt")
    report = verify(path)
    assert [check.name for check in report.checks if not check.passed] == ["finite numbers"]
    with pytest.raises(InvalidFields) as caught:
        read(path)
    assert list(caught.value.errors) == [place]
    assert "not finite" in caught.value.errors[place]


def by_value(member, protocol):
    """As Python writes members since 3.11.4; for a while before, it wrote calls of getattr."""
    return type(member), (member.value,)


class Signal:
    """Written as a member of signal.Signals is."""

    def __reduce__(self):
        return by_value(signal.SIGUSR1, 2)


@pytest.fixture
def schedule(monkeypatch):
    """An enumeration of the other tool, which is there only while the file is written."""
    module = ModuleType("model_training_framework.config")
    made = enum.Enum("Schedule", {"CYCLE": "cycle"}, module=module.__name__)
    made.__reduce_ex__ = by_value
    module.Schedule = made
    monkeypatch.setitem(sys.modules, "model_training_framework", ModuleType("package"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield made
    assert module.Schedule is made


def test_enums_in_the_config_of_a_training_file_are_taken_by_their_values(
    tmp_path, schedule, monkeypatch
):
    snapshot = {"schedule": schedule.CYCLE, "stop_on": Signal()}
    path = save(tree("training") | {"config_snapshot": snapshot}, tmp_path / "file.pt")
    monkeypatch.delitem(sys.modules, "model_training_framework.config")
    assert verify(path).passed
    assert read(path).config_snapshot == {"schedule": "cycle", "stop_on": int(signal.SIGUSR1)}
    assert type(read(path).config_snapshot["stop_on"]) is int


class Stored:
    """Written as a path is: the name of its class, and its parts."""

    def __init__(self, parts):
        self.parts = parts

    def __reduce__(self):
        return Stored, self.parts


def with_path(name, parts, directory):
    """Return a training file whose config holds a path of the class of this name."""
    path = save(tree("training") | {"config_snapshot": Stored(parts)}, directory / "file.pt")
    written = f"c{__name__}\nStored\n".encode()
    module, _, last = name.rpartition(".")
    assert written in pickle_in(path)
    return with_pickle(path, pickle_in(path).replace(written, f"c{module}\n{last}\n".encode()))


@pytest.mark.parametrize(
    ("name", "parts", "text"),
    [
        ("pathlib.PosixPath", ("/", "data", "runs"), "/data/runs"),
        ("pathlib.PurePosixPath", ("runs",), "runs"),
        ("pathlib._local.PosixPath", ("/data/runs",), "/data/runs"),
        ("pathlib._local.PurePosixPath", (), "."),
        ("pathlib.WindowsPath", ("C:\\", "runs"), "C:\\runs"),
        ("pathlib._local.PureWindowsPath", ("runs", "x"), "runs\\x"),
    ],
)
def test_paths_in_the_config_of_a_training_file_are_taken_as_text(tmp_path, name, parts, text):
    path = with_path(name, parts, tmp_path)
    assert verify(path).passed
    assert read(path).config_snapshot == text
    assert any(line.shape == repr(text) for line in show(path))


def test_what_a_real_path_is_saved_as_is_taken(tmp_path):
    content = tree("training") | {"config_snapshot": {"root": Path("/data/runs")}}
    path = save(content, tmp_path / "file.pt")
    assert read(path).config_snapshot == {"root": "/data/runs"}


def test_paths_in_another_file_are_refused(tmp_path):
    path = save(tree("rl") | {"config_dir": Path("configs")}, tmp_path / "file.pt")
    with pytest.raises(ForbiddenContent) as caught:
        read(path)
    assert caught.value.needed in ("pathlib.PosixPath", "pathlib._local.PosixPath")


@pytest.mark.parametrize("parts", [(3,), (b"x",), (["a"],), (("a",),), (None,)])
def test_a_path_of_anything_but_text_is_refused(tmp_path, parts):
    report = verify(with_path("pathlib.PosixPath", parts, tmp_path))
    assert [check.name for check in report.checks if not check.passed] == ["content"]


def test_paths_that_unfold_to_many_times_the_file_are_refused(tmp_path):
    report = verify(with_path("pathlib.PosixPath", ("x" * 2**20,) * 200, tmp_path))
    assert "unfold" in report.checks[-1].detail


@pytest.mark.parametrize("name", ["pathlib.Path", "pathlib.os", "pathlib._local.os", "os.PathLike"])
def test_other_names_beside_paths_are_refused(tmp_path, name):
    with pytest.raises(ForbiddenContent) as caught:
        read(with_path(name, ("/",), tmp_path))
    assert caught.value.needed == name


def test_enums_in_another_file_are_refused(tmp_path, schedule):
    path = save(tree("rl") | {"config_dir": schedule.CYCLE}, tmp_path / "file.pt")
    with pytest.raises(ForbiddenContent) as caught:
        read(path)
    assert caught.value.needed == "model_training_framework.config.Schedule"


def test_the_list_of_names_is_closed_again_after_reading(tmp_path):
    before = set(map(str, torch.serialization.get_safe_globals()))
    read(original("rl", tmp_path))
    assert set(map(str, torch.serialization.get_safe_globals())) == before


def test_every_instruction_that_torch_writes_is_known(tmp_path):
    """And no other: those are the letters that a pickle may be written with."""
    written = set()
    for name in NAMES:
        for opcode, _, _ in pickletools.genops(pickle_in(original(name, tmp_path))):
            written.add(opcode.code)
    known = {chr(each) for each in INSTRUCTIONS} | {"\x80", "."}
    assert written <= known
    assert known - written <= {"\x86", "r", "j", "M", "\x8a", "\x87", "a", "s", "Q", ")", "b"}
