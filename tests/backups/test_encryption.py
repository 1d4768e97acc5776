"""Encrypted backups: what is stored reveals no content, and only the same key reads it."""

from io import BytesIO

import pytest

from apps.backups import making, restoring, snapshots
from apps.backups.errors import KeyProblem, NotABackup
from apps.backups.files import BackupFiles
from apps.backups.keys import BackupKey, read_key
from apps.backups.store import opened
from apps.checkpoints import storage
from apps.operations.lifecycle import State
from tests.api.saved import saved
from tests.operations.rows import in_state
from trainops.encrypted_files import (
    CHUNK_BYTES,
    HEADER_BYTES,
    MAGIC,
    TAG_BYTES,
    Altered,
    content_bytes,
)  # fmt: skip

NAME = "files/ab/abc"
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 7]


def content_of(size):
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


def stored(key, content, name=NAME):
    return b"".join(key.encrypted(BytesIO(content), name))


def read(key, content, name=NAME):
    return key.decrypted(BytesIO(content), name).read()


@pytest.fixture
def key():
    return BackupKey(b"k" * 32)


@pytest.mark.parametrize("size", SIZES)
def test_contents_of_every_size_are_read_as_written(size, key):
    content = content_of(size)
    encrypted = stored(key, content)
    assert read(key, encrypted) == content
    assert content_bytes(len(encrypted)) == size
    assert stored(key, content) != encrypted  # another salt


def test_no_size_is_made_up_for_what_cannot_be_an_encrypted_file():
    assert content_bytes(HEADER_BYTES + TAG_BYTES - 1) == -1
    assert content_bytes(0) == -1


@pytest.mark.parametrize("at", [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + CHUNK_BYTES, -1])
def test_a_flipped_bit_is_refused(at, key):
    encrypted = bytearray(stored(key, content_of(2 * CHUNK_BYTES)))
    encrypted[at] ^= 1
    with pytest.raises(Altered):
        read(key, bytes(encrypted))


@pytest.mark.parametrize("how", ["cut", "cut in a chunk", "exchanged", "repeated", "empty", "more"])
def test_chunks_cannot_be_left_out_exchanged_or_added(how, key):
    encrypted = stored(key, content_of(3 * CHUNK_BYTES))
    header, body = encrypted[:HEADER_BYTES], encrypted[HEADER_BYTES:]
    size = CHUNK_BYTES + TAG_BYTES
    first, second, third = body[:size], body[size : 2 * size], body[2 * size :]
    changed = {
        "cut": first + second,
        "cut in a chunk": body[:-1],
        "exchanged": second + first + third,
        "repeated": first + second + third + third,
        "empty": b"",
        "more": body + b"\0" * 40,
    }[how]
    with pytest.raises(Altered):
        read(key, header + changed)


def test_another_name_and_another_key_are_refused(key):
    encrypted = stored(key, b"content")
    with pytest.raises(Altered):
        read(key, encrypted, name="files/ab/abd")
    with pytest.raises(Altered):
        read(BackupKey(b"l" * 32), encrypted)
    assert key.name_of("0" * 64) != BackupKey(b"l" * 32).name_of("0" * 64)


def test_one_chunk_at_a_time_is_read(key):
    """The first bytes need two chunks: the second shows that the first is not the last one."""

    class Source(BytesIO):
        def read(self, size=-1):
            assert 0 < size <= CHUNK_BYTES + TAG_BYTES
            return super().read(size)

    source = Source(stored(key, content_of(4 * CHUNK_BYTES)))
    assert key.decrypted(source, NAME).read(10) == content_of(10)
    assert source.tell() == HEADER_BYTES + 2 * (CHUNK_BYTES + TAG_BYTES)
    assert next(key.encrypted(Source(b"1"), NAME)).startswith(MAGIC)


@pytest.mark.parametrize("text", ["", "ab" * 31, "no key", "ab" * 33, "é"])
def test_a_file_that_is_no_key_is_refused_with_what_to_do(text, tmp_path):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(KeyProblem, match="64 hexadecimal digits"):
        read_key(path)


def test_a_key_that_is_missing_is_named(tmp_path):
    with pytest.raises(KeyProblem, match="none cannot be read: No such file"):
        read_key(tmp_path / "none")


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("0f" * 32 + "\n")
    return path


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "backups")


@pytest.fixture
def backups(place, key_file, tmp_path):
    return opened(place, key_file, tmp_path)


def all_bytes(backups):
    files = (each for each in backups.place.root.rglob("*") if each.is_file())
    return b"".join(str(each).encode() + each.read_bytes() for each in files)


@pytest.mark.django_db(transaction=True)
class TestBackups:
    def test_nothing_but_sizes_and_times_is_revealed(self, backups):
        checkpoint = saved(in_state(State.CANCELLED))
        first, again = making.make(backups), making.make(backups)
        assert first.snapshot.checkpoints == again.snapshot.checkpoints
        assert again.copied_bytes < first.copied_bytes  # the database alone
        assert list(snapshots.problems(backups, again.name)) == []
        revealed = all_bytes(backups)
        manifest = (storage.directory(checkpoint.artifacts_path) / "manifest.json").read_bytes()
        secrets = [checkpoint.operation_id, checkpoint.manifest_digest, "sqlite", "PRAGMA"]
        for each in [*(each.encode() for each in secrets), manifest[:40]]:
            assert each not in revealed, each
        assert backups.key.id.encode() in revealed

    def test_the_key_must_be_that_of_the_backups(self, backups, place, key_file, tmp_path):
        making.make(backups)
        with pytest.raises(KeyProblem, match=f"id {backups.key.id}: --key FILE"):
            opened(place, None, tmp_path)
        other = tmp_path / "other"
        other.write_text("f0" * 32)
        with pytest.raises(KeyProblem, match=f"another key .* allowed: {backups.key.id}"):
            opened(place, other, tmp_path)
        plain = str(tmp_path / "plain")
        making.make(opened(plain, None, tmp_path))
        with pytest.raises(KeyProblem, match="are not encrypted"):
            opened(plain, key_file, tmp_path)

    @pytest.mark.parametrize("file", [snapshots.DATABASE, "a file", snapshots.INDEX])
    def test_a_flipped_bit_is_found_and_not_restored(self, file, backups, monkeypatch):
        checkpoint = saved(in_state(State.CANCELLED))
        name = making.make(backups).name
        damaged = snapshots.name_of(name, file)
        if file == "a file":
            damaged = backups.name_of(checkpoint.manifest_digest)
        path = backups.place.root / damaged
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        monkeypatch.setattr(restoring.database, "require_empty", lambda: None)
        with pytest.raises(NotABackup, match="was altered"):
            restoring.restore(backups, name)

    def test_backups_are_thinned_by_their_encrypted_names(self, backups):
        saved(in_state(State.CANCELLED))
        making.make(backups)
        name = making.make(backups, keep=1).name
        assert snapshots.newest_first(backups) == [name]
        assert list(snapshots.problems(backups, name)) == []
        assert len(BackupFiles(backups).sizes) == len(snapshots.read(backups, name).files)
