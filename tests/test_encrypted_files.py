"""What is stored for a file by a key: read from anywhere, and turned back in its place."""

import random

import pytest

from trainops import encrypted_files
from trainops.encrypted_files import HEADER_BYTES, TAG_BYTES, Altered, FileKey, stored_bytes

CHUNK = 64
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 5 * CHUNK + 7]
KEY = FileKey(b"k" * 32, "checkpoints")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(encrypted_files, "CHUNK_BYTES", CHUNK)


@pytest.fixture(params=SIZES)
def path(tmp_path, request):
    path = tmp_path / "file"
    path.write_bytes(random.Random(request.param).randbytes(request.param))  # noqa: S311
    return path


def stored(path, name="name", key=KEY):
    with key.opened(path, name) as file:
        return file.read()


def test_it_is_what_backups_write_and_the_same_each_time(path):
    whole = stored(path)
    assert len(whole) == stored_bytes(path.stat().st_size) and whole == stored(path)
    target = path.with_name("stored")
    target.write_bytes(whole)
    with target.open("rb") as file:
        assert KEY.decrypted(file, "name").read() == path.read_bytes()


def test_another_content_name_and_key_give_nothing_in_common(path):
    whole = stored(path)
    path.with_name("other").write_bytes(path.read_bytes() + b"1")
    for other in (
        stored(path.with_name("other")), stored(path, "else"),
        stored(path, key=FileKey(b"j" * 32, "checkpoints")),
        stored(path, key=FileKey(b"k" * 32, "backup")),
    ):  # fmt: skip
        assert other[HEADER_BYTES - 32 : HEADER_BYTES] != whole[HEADER_BYTES - 32 : HEADER_BYTES]
        assert other[HEADER_BYTES : HEADER_BYTES + 16] != whole[HEADER_BYTES : HEADER_BYTES + 16]


def test_drawn_parts_are_those_of_the_whole(path):
    whole, draw = stored(path), random.Random(7)  # noqa: S311
    with KEY.opened(path, "name") as file:
        for _ in range(200):
            begin, size = draw.randrange(len(whole) + 5), draw.randrange(3 * CHUNK)
            assert file.seek(begin) == file.tell() == begin
            assert file.read(size) == whole[begin : begin + size]
        assert file.seek(-3, 2) == len(whole) - 3 and file.read() == whole[-3:]


def test_it_is_turned_back_in_place(path):
    content, target = path.read_bytes(), path.with_name("stored")
    target.write_bytes(stored(path))
    KEY.decrypt_in_place(target, "name")
    assert target.read_bytes() == content


def test_of_drawn_changes_only_what_comes_before_is_left(path):
    content, whole = path.read_bytes(), stored(path)
    draw, target = random.Random(11), path.with_name("stored")  # noqa: S311
    for _ in range(100):
        changed, at = bytearray(whole), draw.randrange(len(whole))
        if draw.random() < 0.5:
            changed[at] ^= 1 << draw.randrange(8)
        else:
            del changed[at:]
        target.write_bytes(changed)
        with pytest.raises(Altered):
            KEY.decrypt_in_place(target, "name")
        left = target.read_bytes()
        assert len(left) <= max(0, at - HEADER_BYTES) and content.startswith(left)
        assert len(left) % CHUNK == 0
    target.write_bytes(whole + b"\0" * (TAG_BYTES + 1))
    with pytest.raises(Altered):
        KEY.decrypt_in_place(target, "name")


def test_it_is_of_no_other_name(path):
    target = path.with_name("stored")
    target.write_bytes(stored(path))
    with pytest.raises(Altered):
        KEY.decrypt_in_place(target, "another")
    assert target.read_bytes() == b""
