"""Checkpoints: whole or absent, and never believed."""

import errno
import json
import os
import pickle
import resource
import signal
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from blake3 import blake3

from trainops.runtime import lossless
from trainops.runtime.checkpoint import archives, durable, manifest
from trainops.runtime.checkpoint.manifest import verify
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore, CheckpointType
from trainops.runtime.errors import CheckpointCorrupted, SaveFailed, UnfreezableState

STATE = {
    "state": {"epoch": 3, "val_loss": float("nan"), "metric": 0.5},
    "model": {"weight": torch.arange(5000.0), "count": torch.tensor(3)},
    "optimizer": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]}],
}
IDENTITY = {"operation_id": "op_1", "attempt": 2, "kind": "training", "config_hash": "abc"}


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "op_1", identity=IDENTITY)


@pytest.fixture
def checkpoint(store):
    return store.write(CheckpointType.PERIODIC, step=7, state=STATE)


def load(store, checkpoint):
    return store.load(Candidate(checkpoint.path, checkpoint.digest))


def rewrite_manifest(checkpoint, change):
    """Return a candidate whose manifest was changed by someone who could fix the row as well."""
    path = checkpoint.path / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return Candidate(checkpoint.path, blake3(path.read_bytes()).hexdigest())


def test_what_is_written_comes_back(store, checkpoint):
    state = load(store, checkpoint)
    assert state.keys() == STATE.keys()
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])
    assert lossless.dumps(state["state"]) == lossless.dumps(STATE["state"])
    assert state["optimizer"][0]["param_groups"] == [{"lr": 0.1}]


def test_the_manifest_says_what_people_ask(checkpoint):
    assert checkpoint.path.name == "a0002-s0000000007-periodic"
    manifest = lossless.loads((checkpoint.path / "manifest.json").read_bytes())
    assert manifest["format"] == "trainops" and manifest["version"] == 1
    assert IDENTITY.items() <= manifest.items()
    assert (manifest["type"], manifest["step"], manifest["metric"]) == ("periodic", 7, 0.5)
    assert manifest["environment"]["torch"] == torch.__version__
    found = verify(checkpoint.path, checkpoint.digest)
    assert found.artifacts == checkpoint.artifacts and found.size_bytes == sum(
        each.stat().st_size for each in checkpoint.path.iterdir() if each.name != "manifest.json"
    )
    assert found.step == 7 and found.state["epoch"] == 3 and found.metric == 0.5


def test_each_checkpoint_has_a_directory_of_its_own(store):
    names = [store.write(CheckpointType.PERIODIC, step=1, state=STATE).path.name for _ in range(3)]
    assert names == [f"a0002-s0000000001-periodic{suffix}" for suffix in ("", "-2", "-3")]


def test_equal_states_have_equal_bytes(store):
    one, two = (store.write(CheckpointType.PERIODIC, step=1, state=STATE) for _ in range(2))
    assert one.artifacts == two.artifacts


def large_state():
    """Some of it can be written straight from memory, some is too small, some lies oddly."""
    frozen = freeze({"model": {"weight": torch.arange(2.5e6), "bias": torch.arange(90_000.0)}})
    odd = torch.arange(300_001, dtype=torch.int16)[1:]
    return {"state": {}, **frozen, "optimizer": {"odd": odd, "step": torch.tensor(1.0)}}


@pytest.fixture
def store_on_disk():
    """Where temporary files lie in memory, every write succeeds, however it lies."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        yield CheckpointStore(Path(directory) / "op_1", identity=IDENTITY)


def test_what_is_large_goes_to_the_disk_without_a_copy_in_the_kernels_cache(
    store_on_disk, monkeypatch
):
    store, written = store_on_disk, []

    def noted_pwrite(descriptor, content, offset):
        written.append(len(content))
        return pwrite(descriptor, content, offset)

    pwrite = os.pwrite
    monkeypatch.setattr(durable.os, "pwrite", noted_pwrite)
    state = large_state()
    checkpoint = store.write(CheckpointType.PERIODIC, step=1, state=state)
    assert durable.CHUNK_BYTES in written
    assert sum(written) > 0.9 * state["model"]["weight"].nbytes
    loaded = load(store, checkpoint)
    assert torch.equal(loaded["model"]["weight"], state["model"]["weight"])
    assert torch.equal(loaded["optimizer"]["odd"], state["optimizer"]["odd"])


def pwrite_half(descriptor, content, offset, pwrite=os.pwrite):
    return pwrite(descriptor, content[: len(content) // 2], offset)


def refuse_pwrite(*args):
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        (durable, "_open_direct", lambda path: None),
        (durable.os, "pwrite", refuse_pwrite),
        (durable.os, "pwrite", pwrite_half),
    ],
    ids=["a file system without it", "memory that lies oddly", "a short write"],
)
def test_whichever_way_it_goes_to_the_disk_the_bytes_are_the_same(
    store, monkeypatch, owner, name, replacement
):
    state = large_state()
    expected = store.write(CheckpointType.PERIODIC, step=1, state=state)
    monkeypatch.setattr(owner, name, replacement)
    found = store.write(CheckpointType.PERIODIC, step=1, state=state)
    assert found.artifacts == expected.artifacts
    assert verify(found.path, found.digest)


def test_others_read_the_archives_with_torch_alone(store):
    state = large_state()
    checkpoint = store.write(CheckpointType.PERIODIC, step=1, state=state)
    for is_mapped in (False, True):
        model = torch.load(checkpoint.path / "model.pt", weights_only=True, mmap=is_mapped)  # noqa: TID251
        assert torch.equal(model["weight"], state["model"]["weight"])


def test_small_tensors_are_not_padded_to_pages(store):
    many = {"model": {str(number): torch.tensor(1.0) for number in range(1000)}}
    checkpoint = store.write(CheckpointType.PERIODIC, step=1, state={"state": {}, **many})
    assert checkpoint.size_bytes < 1000 * 500


def test_what_happens_to_a_file_after_it_was_verified_does_not_matter(store, monkeypatch):
    """Not even when it is overwritten in place, between the digest and the first tensor."""
    model = {"state": {}, "model": STATE["model"]}
    checkpoint = store.write(CheckpointType.PERIODIC, step=1, state=model)
    copy_verified = archives.copy_verified

    @contextmanager
    def too_late(directory, artifact):
        with copy_verified(directory, artifact) as copy:
            path = directory / artifact.name
            with path.open("r+b") as file:
                file.write(b"\0" * path.stat().st_size)
            os.truncate(path, 10)
            yield copy

    monkeypatch.setattr(archives, "copy_verified", too_late)
    assert torch.equal(load(store, checkpoint)["model"]["weight"], STATE["model"]["weight"])


def test_a_file_that_ends_while_it_is_read_is_found(store, checkpoint, monkeypatch):
    class CutShort:
        def __init__(self, file):
            self.file = file

        def readinto(self, view):
            os.truncate(self.file.name, 1000)
            return self.file.readinto(view)

        def fileno(self):
            return self.file.fileno()

    @contextmanager
    def ending(path, name):
        with (path / name).open("rb") as file:
            yield CutShort(file) if name == "model.pt" else file

    monkeypatch.setattr(manifest, "_open", ending)
    with pytest.raises(CheckpointCorrupted) as caught:
        load(store, checkpoint)
    assert caught.value.altered == ["model.pt"]


@pytest.mark.parametrize("name", ["model.pt", "optimizer.pt", "state.json"])
@pytest.mark.parametrize(
    "damage", ["flipped bit", "truncated", "longer", "missing", "link", "fifo"]
)
def test_damage_to_a_file_is_found_and_named(store, checkpoint, name, damage, tmp_path):
    path = checkpoint.path / name
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "flipped bit":
            path.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
        case "truncated":
            path.write_bytes(content[:-1])
        case "longer":
            path.write_bytes(content + b"\0")
        case "link":  # even to the right bytes: what it points to may change
            (tmp_path / "elsewhere").write_bytes(content)
            path.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(path)
    for look in (lambda: load(store, checkpoint), lambda: verify(checkpoint.path)):
        with pytest.raises(CheckpointCorrupted) as caught:
            look()
        found = caught.value.missing if damage == "missing" else caught.value.altered
        assert found == [name]


def test_every_flipped_byte_of_a_small_file_is_found(store, checkpoint):
    path = checkpoint.path / "state.json"
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointCorrupted):
            verify(checkpoint.path, checkpoint.digest)


def test_all_that_is_wrong_is_named_at_once(checkpoint):
    (checkpoint.path / "model.pt").unlink()
    (checkpoint.path / "optimizer.pt").write_bytes(b"")
    with pytest.raises(CheckpointCorrupted) as caught:
        verify(checkpoint.path)
    assert (caught.value.missing, caught.value.altered) == (["model.pt"], ["optimizer.pt"])


def test_swapped_files_are_found(store, checkpoint):
    one, two = checkpoint.path / "model.pt", checkpoint.path / "optimizer.pt"
    one.rename(checkpoint.path / "aside")
    two.rename(one)
    (checkpoint.path / "aside").rename(two)
    with pytest.raises(CheckpointCorrupted):
        load(store, checkpoint)


def test_a_checkpoint_in_the_place_of_another_is_found(store, checkpoint):
    other = store.write(CheckpointType.PERIODIC, step=8, state=STATE)
    with pytest.raises(CheckpointCorrupted):
        store.load(Candidate(other.path, checkpoint.digest))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"format": "trainops"}', b"\xff", b"[" * 100_000, b"1" * 5000],
    ids=["empty", "half", "list", "null", "short", "bytes", "deep", "digits"],
)
def test_a_manifest_that_is_none(store, checkpoint, content):
    (checkpoint.path / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointCorrupted):
        load(store, checkpoint)
    with pytest.raises(CheckpointCorrupted) as caught:
        verify(checkpoint.path)
    assert caught.value.altered == ["manifest.json"]


def test_no_manifest_and_no_directory(store, checkpoint):
    (checkpoint.path / "manifest.json").unlink()
    for path in (checkpoint.path, checkpoint.path / "nowhere"):
        with pytest.raises(CheckpointCorrupted) as caught:
            verify(path)
        assert caught.value.missing == ["manifest.json"]


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "..", "", "a/b.pt", "model.pt\0", "Model.PT", "a.so"],
)
def test_a_manifest_cannot_name_a_file_outside(store, checkpoint, name):
    candidate = rewrite_manifest(
        checkpoint, lambda manifest: manifest["artifacts"][1].update(name=name)
    )
    with pytest.raises(CheckpointCorrupted) as caught:
        store.load(candidate)
    assert caught.value.altered == ["manifest.json"] and "no name" in caught.value.reason


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(version=2),
        lambda manifest: manifest.update(format="other"),
        lambda manifest: manifest.update(artifacts=[]),
        lambda manifest: manifest.update(artifacts=manifest["artifacts"] * 2),
        lambda manifest: manifest.update(type="strange"),
        lambda manifest: manifest.update(step="many"),
        lambda manifest: manifest.pop("environment"),
    ],
)
def test_a_manifest_of_another_shape_is_refused(store, checkpoint, change):
    with pytest.raises(CheckpointCorrupted):
        store.load(rewrite_manifest(checkpoint, change))


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("container", ["zip", "bare pickle"])
def test_a_malicious_pickle_is_never_executed(store, checkpoint, tmp_path, container):
    """Even with a manifest and a row that agree with it."""
    proof, path = tmp_path / "executed", checkpoint.path / "model.pt"
    if container == "zip":
        torch.save({"weight": Bomb(proof)}, path)
    else:
        path.write_bytes(pickle.dumps(Bomb(proof)))
    content = path.read_bytes()

    def agree(manifest):
        entry = next(each for each in manifest["artifacts"] if each["name"] == "model.pt")
        entry.update(size_bytes=len(content), blake3=blake3(content).hexdigest())

    with pytest.raises(CheckpointCorrupted) as caught:
        store.load(rewrite_manifest(checkpoint, agree))
    assert caught.value.altered == ["model.pt"] and not proof.exists()


def test_an_unanswering_disk_is_not_damage(checkpoint, store, monkeypatch):
    """An I/O error may pass; a checkpoint once marked corrupted stays so."""

    def broken(*args, **kwargs):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("trainops.runtime.checkpoint.manifest.os.open", broken)
    with pytest.raises(OSError, match="Input/output"):
        load(store, checkpoint)


def test_a_full_disk_is_noticed_before_the_first_byte(store, monkeypatch):
    written = []
    monkeypatch.setattr(durable.DurableFile, "write", lambda self, content: written.append(1))
    monkeypatch.setattr(
        durable.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 2**20})
    )
    with pytest.raises(SaveFailed, match="no space left") as caught:
        store.write(CheckpointType.PERIODIC, step=3, state=STATE)
    assert caught.value.step == 3
    assert not written and list(store.root.iterdir()) == []


def test_a_nearly_full_disk_is_kept_for_the_last_checkpoint(tmp_path, monkeypatch):
    """Periodic saving pauses while others still can; at a stop there is room for one."""
    free = {"free": 2**30}
    monkeypatch.setattr(durable.shutil, "disk_usage", lambda path: type("Usage", (), free))
    store = CheckpointStore(tmp_path / "op_1", identity=IDENTITY, reserve_bytes=2**30)
    with pytest.raises(SaveFailed, match="periodic saving pauses"):
        store.write(CheckpointType.PERIODIC, step=3, state=STATE)
    assert list(store.root.iterdir()) == []
    assert store.write(CheckpointType.SHUTDOWN, step=3, state=STATE).step == 3
    free["free"] = 2**30 + 2**20
    assert store.write(CheckpointType.PERIODIC, step=4, state=STATE).step == 4


def test_a_disk_that_fills_while_writing_leaves_nothing_behind(store, monkeypatch):
    class Full:
        def __init__(self, file):
            self.file, self.left = file, 3000

        def write(self, content):
            self.left -= len(content)
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(content)

        def __getattr__(self, name):
            return getattr(self.file, name)

    original = durable.DurableFile.__init__

    def fill_up(self, path, expected_bytes):
        original(self, path, expected_bytes)
        self._file = Full(self._file)

    monkeypatch.setattr(durable.DurableFile, "__init__", fill_up)
    with pytest.raises(SaveFailed, match="No space left on device"):
        store.write(CheckpointType.PERIODIC, step=3, state=STATE)
    assert list(store.root.iterdir()) == []


def test_a_real_limit_of_the_kernel_is_survived(store, checkpoint):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, before[1]))
    try:
        with pytest.raises(SaveFailed, match="File too large"):
            store.write(CheckpointType.PERIODIC, step=3, state=STATE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(store.root.iterdir()) == [checkpoint.path]
    assert verify(checkpoint.path, checkpoint.digest)


@pytest.mark.parametrize("moment", ["fsync", "rename", "sync_directory"])
def test_an_error_at_any_moment_of_the_commit_leaves_nothing_behind(store, monkeypatch, moment):
    def fail(*args, **kwargs):
        raise OSError(errno.EIO, "Input/output error")

    target = {
        "fsync": "trainops.runtime.checkpoint.durable.os.fsync",
        "rename": "trainops.runtime.checkpoint.durable.Path.rename",
        "sync_directory": "trainops.runtime.checkpoint.store.sync_directory",
    }[moment]
    monkeypatch.setattr(target, fail)
    with pytest.raises(SaveFailed, match="Input/output"):
        store.write(CheckpointType.PERIODIC, step=3, state=STATE)
    assert list(store.root.iterdir()) == []


def test_a_part_cannot_write_outside_its_directory(store):
    for name in ("../evil", "a/b", "", "Model", "a" * 65):
        with pytest.raises(UnfreezableState, match="part of the state"):
            store.write(CheckpointType.PERIODIC, step=1, state={"state": {}, name: {}})
    with pytest.raises(UnfreezableState, match="tuple"):
        store.write(CheckpointType.PERIODIC, step=1, state={"state": {"pair": (1, 2)}})
    assert not store.root.exists()


def test_there_is_a_manifest_only_once_every_file_is_on_the_disk(store, monkeypatch):
    """The order of the system calls is the promise."""
    calls = []
    fsync, rename = os.fsync, durable.Path.rename

    def noted_fsync(descriptor):
        calls.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def noted_rename(self, target):
        calls.append(f"rename to {target.name}")
        return rename(self, target)

    monkeypatch.setattr(durable.os, "fsync", noted_fsync)
    monkeypatch.setattr(durable.Path, "rename", noted_rename)
    name = store.write(CheckpointType.FINAL, step=1, state=STATE).path.name
    parts = ["state.json", "model.pt", "optimizer.pt"]
    commit = ["manifest.json.draft", "rename to manifest.json", name]
    assert calls == [*parts, name, *commit, "op_1"]
