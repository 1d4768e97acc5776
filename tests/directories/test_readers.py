"""The readers: what they return, in any process; and errors that name the file."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.directories import making
from tests.directories.making import CASES, NUM, pixels
from trainops.datasets import layouts
from trainops.datasets.errors import DataError, DirectoryChanged
from trainops.datasets.files import scan
from trainops.learning.readers import (
    ArrayRows,
    ArrowRows,
    ImageFolder,
    ImagePairs,
    JsonLines,
    ParquetRows,
    TarShards,
    TextLines,
    lines,
)


@pytest.fixture
def made(data):
    """Make the data of a case; return its directory."""

    def made(case):
        CASES[case][0](data)
        return data

    return made


def same(first, second):
    """Whether two examples are equal, types included."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


def first_of(examples):
    return examples[0]


@pytest.mark.parametrize("case", CASES)
def test_a_registered_directory_reads_as_a_plain_path(made, registered, case):
    root, reader = made(case), CASES[case][1]
    plain, checked = reader(root), reader(registered(root))
    assert len(plain) == len(checked) == NUM
    for n in [*range(NUM), 3, 0]:
        assert same(plain[n], checked[n])
    for n in (NUM, -1):
        with pytest.raises(IndexError):
            plain[n]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "context"), [*((each, "fork") for each in CASES), ("parquet", "spawn")]
)
def test_worker_processes_read_the_same(made, registered, case, context):
    dataset = CASES[case][1](registered(made(case)))
    expected = [dataset[n] for n in range(NUM)]  # files are open here before the others start
    loader = DataLoader(
        dataset, num_workers=2, multiprocessing_context=context, collate_fn=first_of,
        generator=torch.Generator(),
    )  # fmt: skip
    assert same(list(loader), expected)


@pytest.mark.parametrize("case", CASES)
def test_a_copy_by_pickle_reads_the_same(made, case):
    dataset = CASES[case][1](made(case))
    before = [dataset[n] for n in range(NUM)]
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - of our own
    assert same([copy[n] for n in range(NUM)], before)


@pytest.mark.parametrize("case", CASES)
def test_a_layout_is_recognised(made, case):
    root = made(case)
    (root / "README.md").write_text("about the data")
    found = layouts.describe(root, scan(root))
    assert found["layout"] == making.LAYOUTS.get(case, case)
    (root / "stray.bin").write_bytes(b"")
    assert layouts.describe(root, scan(root))["layout"] == "files"


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_changes_during_the_training_is_named(made, registered, case):
    root = made(case)
    dataset = CASES[case][1](registered(root))
    dataset[NUM - 1]
    last = max(each for each in root.rglob("*") if each.is_file() and each.suffix != ".json")
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    with pytest.raises(DirectoryChanged, match=last.name):
        for n in range(NUM):
            dataset[n]


def test_headers_tell_classes_rows_and_columns(data):
    making.image_folders(data)
    found = layouts.describe(data, scan(data))
    assert found["classes"] == [{"name": f"class {n}", "count": 4} for n in range(3)]
    assert found["num_examples"] == NUM


def test_headers_of_tables_tell_rows_and_columns(data):
    making.parquet(data)
    found = layouts.describe(data, scan(data))
    assert found["num_examples"] == NUM
    assert found["columns"] == [
        {"name": "number", "type": "int64"}, {"name": "name", "type": "string"},
    ]  # fmt: skip


def test_headers_of_arrays_tell_shapes(data):
    making.npy(data)
    columns = layouts.describe(data, scan(data))["columns"]
    assert columns[0] == {"name": "x.npy", "type": "float32 12 x 2 x 3"}


def test_images_are_those_of_the_files_with_the_class_of_their_folder(data):
    making.image_folders(data)
    dataset = ImageFolder(data)
    assert dataset.classes == ["class 0", "class 1", "class 2"]
    for n in range(NUM):
        image, label = dataset[n]  # sorted by folder
        number = n % 4 * 3 + n // 4
        assert label == number % 3
        assert torch.equal(image, torch.from_numpy(pixels(number)).permute(2, 0, 1))


def test_a_split_is_a_folder_of_class_folders(data):
    for split in ("train", "test"):
        making.image_folders(data / split)
    assert layouts.describe(data, scan(data))["layout"] == "image_folders"
    dataset = ImageFolder(data, "train", mode="L", size=(4, 6), transform=lambda x: x / 255)
    assert len(dataset) == NUM
    image, label = dataset[0]
    assert image.shape == (1, 4, 6) and image.dtype == torch.float32 and label == 0


def test_a_mask_belongs_to_the_image_of_its_name(data):
    making.image_pairs(data)
    dataset = ImagePairs(data)
    image, mask = dataset[5]
    assert torch.equal(image, torch.from_numpy(pixels(5)).permute(2, 0, 1))
    assert torch.equal(mask, torch.from_numpy(pixels(5, channels=1)))
    (data / "masks" / "003.png").unlink()
    with pytest.raises(DataError, match="images/003 has no partner in masks"):
        ImagePairs(data)
    making.save_image(data / "masks" / "003.png", 3, channels=1, size=9)
    with pytest.raises(DataError, match=r"images/003.png and masks/003.png .* different sizes"):
        ImagePairs(data)[3]
    image, mask = ImagePairs(data, size=(5, 5))[3]
    assert image.shape == (3, 5, 5) and mask.shape == (5, 5)
    flipped = ImagePairs(
        data, size=(5, 5), transform=lambda *pair: [each.flip(-1) for each in pair]
    )
    assert all(map(torch.equal, flipped[3], (image.flip(-1), mask.flip(-1))))


@pytest.mark.parametrize(
    "content", [b"", b"text", "cut", "flipped"], ids=["empty", "text", "cut", "flipped"]
)
def test_an_image_that_cannot_be_decoded_is_named(data, content):
    making.image_folders(data)
    path = data / "class 0" / "003.png"
    whole = path.read_bytes()
    if content == "cut":
        content = whole[: len(whole) // 2]
    elif content == "flipped":
        content = whole[:60] + bytes([whole[60] ^ 255]) + whole[61:]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"class 0/003.png cannot be read"):
        ImageFolder(data)[1]


def test_what_is_no_image_or_in_no_class_is_named(data):
    making.image_folders(data)
    making.save_image(data / "stray.png", 0)
    with pytest.raises(DataError, match=r"stray.png is in no class folder"):
        ImageFolder(data)
    (data / "stray.png").rename(data / "class 0" / "notes.doc")
    with pytest.raises(DataError, match=r"class 0/notes.doc is no image; allowed: .bmp"):
        ImageFolder(data)
    with pytest.raises(DataError, match="train has no files"):
        ImageFolder(data, "train")


def test_rows_of_several_files_and_row_groups(data):
    making.parquet(data)
    rows = ParquetRows(data, cached_groups=1)
    assert rows.num_groups == 6 and len(rows) == NUM
    wanted = [11, 0, 5, 5, 2, 10]
    assert rows.__getitems__(wanted) == [{"number": n, "name": f"row {n}"} for n in wanted]
    assert rows[7] == {"number": 7, "name": "row 7"}
    assert ParquetRows(data, ["name"])[3] == {"name": "row 3"}


def test_a_shuffled_order_reads_each_row_group_once(data, monkeypatch):
    making.parquet(data)
    rows = ParquetRows(data, cached_groups=2)
    order = rows.order(7, 1).tolist()
    assert sorted(order) == list(range(NUM)) and order != sorted(order)
    assert order == rows.order(7, 1).tolist()
    assert len({tuple(rows.order(*each).tolist()) for each in [(7, 1), (7, 2), (8, 1)]}) == 3
    read, read_group = [], ParquetRows._read
    monkeypatch.setattr(rows._tables, "_make", lambda n: read.append(n) or read_group(rows, n))
    assert [rows[n]["number"] for n in order] == order
    assert sorted(read) == list(range(6))


def test_a_missing_column_and_files_that_differ_are_named(data):
    making.parquet(data)
    with pytest.raises(DataError, match="has no column size; allowed: number, name"):
        ParquetRows(data, ["size"])
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"number": ["1"], "name": ["x"]}), data / "part-3.parquet")
    with pytest.raises(DataError, match=r"number is string in .*part-3.parquet, int64 before"):
        ParquetRows(data)


def cut(path, num_bytes):
    path.write_bytes(path.read_bytes()[:-num_bytes])


@pytest.mark.parametrize(
    ("case", "name", "problem"),
    [
        ("parquet", "part-1.parquet", "part-1.parquet is no complete Parquet file"),
        ("npy", "x.npy", "x.npy is cut off"),
        ("npz", "both.npz", "both.npz is no complete NPZ file"),
        ("tar_shards", "1.tar", "1.tar is cut off"),
        ("arrow", "data-00001-of-00002.arrow", "00001-of-00002.arrow is no complete Arrow file"),
    ],
)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_named(made, case, name, problem, share):
    root = made(case)
    size = (root / name).stat().st_size
    cut(root / name, int(size * share))
    with pytest.raises(DataError, match=problem.replace("is cut off", "(is cut off|is no|cannot)")):
        dataset = CASES[case][1](root)
        for n in range(NUM):
            dataset[n]


def test_a_damaged_row_group_is_named(data):
    making.parquet(data)
    path = data / "part-1.parquet"
    content = path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(60) + content[64:])
    with pytest.raises(DataError, match=r"part-1.parquet: row group 0 cannot be read"):
        ParquetRows(data)[4]


def test_arrays_of_any_byte_order_by_their_names(data):
    making.npy(data)
    rows = ArrayRows(data)
    assert rows[3]["x"].tolist() == [[18.0, 19.0, 20.0], [21.0, 22.0, 23.0]]
    assert rows[3]["y"].dtype == torch.int64 and rows[3]["y"].item() == 3
    assert ArrayRows(data / "y.npy")[11]["y"].item() == 11


@pytest.mark.parametrize(
    ("save", "problem"),
    [
        (lambda p: np.savez_compressed(p / "a.npz", x=np.arange(3)), "allowed: numpy.savez, not"),
        (lambda p: np.save(p / "a.npy", np.array([{}])), "allowed: rows of numbers"),
        (lambda p: np.save(p / "a.npy", np.float32(1)), "allowed: rows of numbers"),
        (lambda p: np.save(p / "a.npy", np.ones((3, 2), order="F")), "allowed: C order"),
        (lambda p: (p / "a.npy").write_bytes(b"text"), "a.npy cannot be read"),
        (lambda p: (p / "a.npz").write_bytes(b"text"), "a.npz is no complete NPZ file"),
        (lambda p: (p / "a.csv").write_bytes(b"text"), "a.csv is neither NPY nor NPZ"),
        (lambda p: np.savez(p / "a.npz", x=np.ones(3), y=np.ones(4)), "x has 3 rows, y has 4 rows"),
    ],
)
def test_an_array_that_cannot_be_read_by_rows_is_named(data, save, problem):
    save(data)
    with pytest.raises(DataError, match=problem):
        ArrayRows(data)


def test_lines_of_text(data):
    making.text(data)
    rows = TextLines(data)
    found = [rows[n] for n in range(NUM)]
    assert found[:6] == [f"line {n}" for n in range(6)]
    assert found[6:] == ["", "ö", "", "line 9", "line 10", "line 11"]
    assert rows.place(7).endswith("b.txt, line 2")


def test_lines_are_found_beyond_one_piece(data, monkeypatch):
    monkeypatch.setattr("trainops.learning.readers.lines.PIECE_BYTES", 5)
    making.json_lines(data)
    rows = JsonLines(data)
    assert [rows[n]["number"] for n in range(NUM)] == list(range(NUM))


def test_the_index_of_lines_is_kept_in_a_cache_and_follows_the_file(data, tmp_path, monkeypatch):
    making.text(data)
    cache = tmp_path / "cache"
    first = [TextLines(data, cache=cache)[n] for n in range(NUM)]
    assert len(list(cache.iterdir())) == 2
    with monkeypatch.context() as patch:
        patch.setattr("trainops.learning.readers.lines._line_starts", None)
        assert [TextLines(data, cache=cache)[n] for n in range(NUM)] == first
    (data / "b.txt").write_text("another\n")
    assert TextLines(data, cache=cache)[6] == "another"


def test_several_readers_may_write_the_index_of_lines_at_once(data, tmp_path, monkeypatch):
    """As in containers that share a directory: their processes may have the same number."""
    making.text(data)
    begun = threading.Barrier(4)
    index_of = lines._line_starts

    def begun_together(path):
        begun.wait()
        return index_of(path)

    monkeypatch.setattr(lines, "_line_starts", begun_together)
    with ThreadPoolExecutor(4) as pool:
        readers = list(pool.map(lambda _: TextLines(data, cache=tmp_path / "cache"), range(4)))
    assert [each[7] for each in readers] == ["ö"] * 4
    assert len(list((tmp_path / "cache").iterdir())) == 2  # no draft is left


def test_a_line_that_cannot_be_decoded_is_named(data):
    (data / "a.jsonl").write_bytes(b'{"a": 1}\n\n{"a": \n"\xff"\n')
    rows = JsonLines(data)
    assert rows[0] == {"a": 1}
    for n in (1, 2):
        with pytest.raises(DataError, match=rf"a.jsonl, line {n + 1} is not JSON"):
            rows[n]
    with pytest.raises(DataError, match=r"a.jsonl, line 4 is not UTF-8"):
        rows[3]
    (data / "b.txt").write_text("x")
    with pytest.raises(DataError, match=r"b.txt; allowed: .jsonl"):
        JsonLines(data)


def test_no_line_at_all_is_refused(data):
    (data / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="holds no line"):
        TextLines(data)


def test_examples_of_shards_are_decoded_by_their_parts(data):
    making.tar_shards(data)
    shards = TarShards(data)
    for n in (11, 0, 7):
        example = shards[n]
        assert example["__key__"] == f"images/{n:03d}"
        assert (example["cls"], example["json"]) == (n % 3, [n])
        assert torch.equal(example["png"], torch.from_numpy(pixels(n)).permute(2, 0, 1))
    assert TarShards(data, is_decoded=False)[4]["json"] == b"[4]"


def test_a_part_that_cannot_be_decoded_is_named(data):
    making.tar_shards(data)
    content = (data / "0.tar").read_bytes().replace(b"[3]", b"[3,")
    (data / "0.tar").write_bytes(content)
    with pytest.raises(DataError, match=r"0.tar: images/003.json cannot be read"):
        TarShards(data)[3]


def test_rows_of_a_saved_dataset(data):
    making.arrow(data)
    rows = ArrowRows(data)
    assert [rows[n]["number"] for n in range(NUM)] == list(range(NUM))
    state = (data / "state.json").read_text()
    (data / "state.json").write_text(state.replace('"_split"', '"_indices_files": [{}], "_split"'))
    with pytest.raises(DataError, match="allowed: a dataset after flatten_indices"):
        ArrowRows(data)
    (data / "state.json").unlink()
    with pytest.raises(DataError, match=r"has no state.json"):
        ArrowRows(data)


@pytest.fixture
def splits(data):
    """Write what `datasets.DatasetDict.save_to_disk` writes: a folder for each split."""
    for name in ("train", "test", "far-away"):
        (data / name).mkdir()
        making.arrow(data / name)
    (data / "dataset_dict.json").write_text('{"splits": ["train", "test", "far-away"]}')
    return data


def test_the_splits_of_a_saved_dataset_are_folders(splits, registered):
    (splits / "README.md").write_text("about the data")
    found = layouts.describe(splits, scan(splits))
    assert (found["layout"], found["title"]) == ("arrow", "Hugging Face dataset (Arrow)")
    for root in (splits, registered(splits)):
        for folder in ("train", "far-away"):
            rows = ArrowRows(root, folder)
            assert [rows[n]["number"] for n in range(len(rows))] == list(range(NUM))
    allowed = 'allowed: folder="far-away", folder="test", folder="train"'
    for folder in ("", "valid"):
        with pytest.raises(DataError, match=allowed):
            ArrowRows(splits, folder)


@pytest.mark.parametrize(
    "name", ["train/state.json", "test/dataset_info.json", "dataset_dict.json"]
)
def test_splits_that_lack_a_file_are_not_recognised(splits, name):
    (splits / name).unlink()
    assert layouts.describe(splits, scan(splits))["layout"] == "files"


@pytest.mark.slow
def test_an_error_in_a_worker_process_still_names_the_file(data):
    making.image_folders(data)
    (data / "class 0" / "003.png").write_bytes(b"")
    loader = DataLoader(ImageFolder(data), num_workers=1, generator=torch.Generator())
    with pytest.raises(DataError, match=r"003.png cannot be read"):
        list(loader)
