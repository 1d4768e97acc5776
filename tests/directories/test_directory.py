"""A registered directory: its manifest, its verification, and changes while it is read."""

import errno
import os
import random
from pathlib import Path

import pytest

from trainops.datasets import manifest as manifests
from trainops.datasets import verification
from trainops.datasets.directory import Directory
from trainops.datasets.errors import DataError, DirectoryAway, DirectoryChanged
from trainops.datasets.files import scan
from trainops.datasets.manifest import Manifest
from trainops.datasets.sampling import Sample


def fill(root, **files):
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)


def test_a_manifest_is_a_function_of_names_and_contents(data, tmp_path):
    fill(data, b__2=b"two", a=b"one", empty=b"")
    first, second = tmp_path / "1", tmp_path / "2"
    manifests.make(data, scan(data)).write(first)
    (data / "a").touch()
    manifests.make(data, scan(data)).write(second)
    assert first.read_bytes() == second.read_bytes()
    read = Manifest.read(first)
    assert read.names.to_pylist() == ["a", "b/2", "empty"]
    assert read.sizes.tolist() == [3, 3, 0]
    assert [read.index(name) for name in ("a", "b/2", "empty", "b", "z")] == [0, 1, 2, -1, -1]
    assert read.digests_of(2) == [] and len(read.digests_of(0)) == 1


def test_files_are_read_as_they_are(data, registered):
    fill(data, a=b"one", b=b"two")
    directory = registered(data)
    with directory.reading(1) as path:
        assert path.read_bytes() == b"two"


def remove(root):
    (root / "b").unlink()


def grow(root):
    (root / "b").write_bytes(b"three")


def add(root):
    (root / "c").write_bytes(b"")


def rename(root):
    (root / "b").rename(root / "c")


def alter(root):
    """Change the content, and neither the size nor the time of the modification."""
    status = (root / "b").stat()
    (root / "b").write_bytes(b"TWO")
    os.utime(root / "b", ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = {
    remove: "b is missing",
    grow: "b has 5 bytes instead of 3",
    add: "c is new",
    rename: "b is missing, c is new",
    alter: "b has another content",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_directory_that_changed_is_refused_by_the_names_that_differ(data, register, change):
    fill(data, a=b"one", b=b"two")
    location = register(data)
    change(data)
    with pytest.raises(DirectoryChanged) as error:
        Directory.open(location, seed=0)
    assert f"{data} is not the directory that was registered: {CHANGES[change]}." in str(
        error.value
    )


@pytest.mark.parametrize("change", CHANGES)
def test_the_whole_verification_finds_each_change(data, register, tmp_path, change):
    fill(data, a=b"one", b=b"two")
    register(data)
    manifest = tmp_path / "ds_0123456789abcdef.parquet"
    assert verification.verify(data, manifest, [])["problems"] == []
    change(data)
    assert ", ".join(verification.verify(data, manifest, [])["problems"]) == CHANGES[change]


def test_the_whole_verification_names_all_that_differs(data, register, tmp_path):
    fill(data, a=b"one", b=b"two", c=b"three", d=b"four")
    register(data)
    fill(data, a=b"ONE", c=b"", e=b"")
    (data / "b").unlink()
    found = verification.verify(data, tmp_path / "ds_0123456789abcdef.parquet", [])
    assert found == {
        "problems": [
            "b is missing", "c has 0 bytes instead of 5", "e is new", "a has another content",
        ],
        "num_files": 4, "num_files_read": 2, "num_bytes": 15, "num_bytes_read": 7, "seed": None,
    }  # fmt: skip


@pytest.mark.parametrize("change", [remove, grow, add, rename])
def test_a_sample_compares_all_names_and_sizes(data, register, tmp_path, change):
    fill(data, a=b"one", b=b"two")
    register(data)
    change(data)
    manifest = tmp_path / "ds_0123456789abcdef.parquet"
    for seed in range(5):
        found = verification.verify(data, manifest, [], Sample(seed, num_files=1))
        assert ", ".join(found["problems"]) == CHANGES[change]


def test_a_sample_reads_the_files_that_its_seed_draws(data, register, tmp_path):
    fill(data, **{f"{number:02}": b"one" for number in range(20)})
    register(data)
    sample = Sample(seed=3, fraction=0.2)
    drawn = sample.drawn(20)
    assert len(drawn) == 4 and drawn == sample.drawn(20) != Sample(4, fraction=0.2).drawn(20)
    for each in data.iterdir():
        each.write_bytes(b"two")
    found = verification.verify(data, tmp_path / "ds_0123456789abcdef.parquet", [], sample)
    assert found["problems"] == [f"{number:02} has another content" for number in drawn]
    assert (found["num_files"], found["num_files_read"], found["seed"]) == (20, 4, 3)
    assert (found["num_bytes"], found["num_bytes_read"]) == (60, 12)


@pytest.mark.parametrize(
    ("sample", "num_drawn"),
    [
        (Sample(0, num_files=30), 20),
        (Sample(0, fraction=0.001), 1),
        (Sample(0, fraction=1.0), 20),
    ],
)
def test_a_sample_has_one_file_at_least_and_all_at_most(sample, num_drawn):
    assert len(sample.drawn(20)) == num_drawn


@pytest.mark.parametrize("change", [remove, grow, alter, rename])
def test_a_change_during_the_training_fails_by_name(data, registered, change):
    fill(data, a=b"one", b=b"two")
    directory = registered(data)
    with directory.reading(1):
        pass
    change(data)
    with directory.reading(0):
        pass
    problem = CHANGES[change].partition(",")[0]
    with pytest.raises(DirectoryChanged, match=problem), directory.reading(1):
        pytest.fail("it was read")


def test_a_change_while_a_file_is_read_is_found(data, registered):
    fill(data, a=b"one", b=b"two")
    directory = registered(data)
    with pytest.raises(DirectoryChanged, match="b has another content"), directory.reading(1):
        alter(data)


def test_a_file_that_was_only_touched_is_read(data, registered):
    fill(data, a=b"one", b=b"two")
    directory = registered(data)
    (data / "b").write_bytes(b"two")
    for _ in range(2):
        with directory.reading(1) as path:
            assert path.read_bytes() == b"two"


@pytest.mark.slow
def test_a_change_outside_of_the_sample_is_found_when_the_file_is_read(data, register):
    fill(data, **{f"f{n:04d}": b"%d" % n for n in range(1000)})
    location = register(data)
    (data / "f0777").write_bytes(b"***")
    seed = next(n for n in range(50) if not is_found(location, n))
    directory = Directory.open(location, seed)
    with pytest.raises(DirectoryChanged, match="f0777 has another content"):
        for index in range(1000):
            with directory.reading(index) as path:
                assert int(path.read_bytes()) == index


def is_found(location, seed):
    try:
        Directory.open(location, seed)
    except DirectoryChanged:
        return True
    return False


def test_the_sample_follows_from_the_seed(data, register, monkeypatch):
    fill(data, **{f"f{n:04d}": b"%d" % n for n in range(200)})
    location = register(data)

    def compared(seed):
        seen = []
        monkeypatch.setattr(Directory, "_compare", lambda _, index, blocks: seen.append(index))
        Directory.open(location, seed)
        return seen

    assert compared(1) == compared(1) != compared(2)
    assert len(compared(1)) == 32


def test_blocks_of_a_large_file_are_sampled_and_compared(data, register, monkeypatch):
    monkeypatch.setattr(manifests, "BLOCK_BYTES", 1000)
    content = random.Random(0).randbytes(10_500)
    fill(data, a=b"", b=content, c=b"x")
    location = register(data)
    assert len(Manifest.read(location.with_name("ds_0123456789abcdef.parquet")).digests_of(1)) == 11
    directory = Directory.open(location, seed=0)
    (data / "b").write_bytes(content[:-1] + b"!")
    with pytest.raises(DirectoryChanged, match="b has another content"):
        Directory.open(location, seed=0)
    with pytest.raises(DirectoryChanged), directory.reading(1):
        pass


def test_many_differences_are_counted(data, register):
    fill(data, **{f"f{n}": b"" for n in range(9)})
    location = register(data)
    for each in data.iterdir():
        each.write_bytes(b"x")
    with pytest.raises(DirectoryChanged, match=r"f4 has 1 bytes instead of 0, and 4 more\."):
        Directory.open(location, seed=0)


def test_a_directory_that_is_gone_is_named(data, register):
    fill(data, a=b"one")
    location = register(data)
    data.rename(data.with_name("moved"))
    with pytest.raises(DirectoryAway, match="is not a directory on this machine"):
        Directory.open(location, seed=0)
    data.mkdir()
    with pytest.raises(DirectoryAway, match="is empty on this machine: is it mounted"):
        Directory.open(location, seed=0)


@pytest.mark.parametrize("is_mount_point_left", [False, True])
def test_a_directory_that_goes_away_during_the_training_is_no_change(
    data, registered, is_mount_point_left
):
    fill(data, a=b"one", b=b"two")
    directory = registered(data)
    data.rename(data.with_name("moved"))
    if is_mount_point_left:
        data.mkdir()
    with pytest.raises(DirectoryAway, match="is it mounted"), directory.reading(1):
        pass


def test_all_files_are_checked_for_a_library_that_reads_them_itself(data, registered):
    fill(data, a=b"one", b=b"two")
    directory = registered(data)
    assert directory.unchanged() == data
    fill(data, b=b"2nd")
    with pytest.raises(DirectoryChanged, match="b has another content"):
        directory.unchanged()


def test_a_directory_that_goes_away_while_a_file_is_compared_is_no_change(
    data, register, monkeypatch
):
    """Its files changed at the time of the registration, so the first reading compares them."""
    fill(data, a=b"one", b=b"two")
    directory = Directory.open(register(data), seed=0)
    opens = Path.open

    def gone(path, *arguments, **named):
        data.rename(data.with_name("moved"))
        return opens(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", gone)
    with pytest.raises(DirectoryAway, match="is it mounted"), directory.reading(1):
        pass


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENOTCONN])
def test_a_directory_that_does_not_answer_is_away(data, register, monkeypatch, number):
    """As on a file server that is gone while it is mounted."""
    fill(data, a=b"one", b=b"two")
    location = register(data)
    directory = Directory.open(location, seed=0)

    def fails(*arguments, **named):
        raise OSError(number, os.strerror(number))

    for each in (Path, "stat"), (Path, "iterdir"), (os, "scandir"):
        monkeypatch.setattr(*each, fails)
    with pytest.raises(DirectoryAway, match="is it mounted"), directory.reading(1):
        pass
    with pytest.raises(DirectoryAway, match=r"does not answer \("):
        Directory.open(location, seed=0)


def test_links_lead_to_files_below_the_allowed_roots(data, tmp_path):
    outside = tmp_path / "secret"
    outside.write_bytes(b"secret")
    fill(data, a=b"one")
    (data / "link").symlink_to(data / "a")
    assert [each.name for each in scan(data, [data])] == ["a", "link"]
    (data / "out").symlink_to(outside)
    with pytest.raises(DataError, match="outside the allowed roots"):
        scan(data, [data])
    assert len(scan(data)) == 3
    (data / "out").unlink()
    (data / "loop").symlink_to(data)
    with pytest.raises(DataError, match="allowed: links to files"):
        scan(data)


def test_what_is_no_file_is_named(data):
    os.mkfifo(data / "pipe")
    with pytest.raises(DataError, match="pipe is neither a file nor a directory"):
        scan(data)


def test_a_name_that_is_not_utf_8_is_refused(data):
    os.close(os.open(os.fsencode(data) + b"/\xff", os.O_CREAT))
    with pytest.raises(DataError, match="allowed: names in UTF-8"):
        scan(data)


def test_a_table_is_no_directory(tmp_path):
    with pytest.raises(DataError, match=r"got the table t\.parquet"):
        Directory.open(tmp_path / "t.parquet", seed=0)
