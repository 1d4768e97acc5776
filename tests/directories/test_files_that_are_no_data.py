"""Files that are no data: readers and the detection of the layout skip them."""

import gzip

import pytest
import torch

from tests.directories.making import CASES, NUM
from tests.directories.test_readers import same
from trainops.datasets import layouts
from trainops.datasets.directory import Directory
from trainops.datasets.errors import DataError
from trainops.datasets.files import is_data, scan
from trainops.kinds.loop.recipes.characters_module import _text_of_files
from trainops.learning import readers
from trainops.learning.readers import ImageFolder, ParquetRows, TextLines

ABOUT = (
    "README", "README.md", "readme.txt", "LICENSE", "LICENSE.txt", "LICENSE-MIT", "licence.md",
    "_SUCCESS", "._SUCCESS.crc", ".part-0.parquet.crc", "_metadata", "_common_metadata",
    "_committed_123", "_started_123", "checksums.txt", "CHECKSUMS.sha256", "SHA256SUMS",
    ".DS_Store", ".gitattributes", "Thumbs.db", "desktop.ini",
    ".git/config", ".cache/huggingface/0.parquet.metadata", ".ipynb_checkpoints/0.png",
)  # fmt: skip
DATA = (
    "readme.parquet", "license_plates.txt", "license-plates.txt", "license/0.png",
    "class/licence_7.png", "checksums.npy", "_background/0.png", "_metadata.parquet", "a.jsonl",
    "SUCCESS", "readme.tar", "thumbs/0.png",
)  # fmt: skip


def litter(root):
    """Write such files beside the data, and below it."""
    for folder in (root, *(each for each in root.iterdir() if each.is_dir())):
        for name in ABOUT:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(name.encode()))


def test_every_reader_is_tried():
    tried = {reader.__name__ for _, reader in CASES.values()}
    assert tried == {each for each in readers.__all__ if isinstance(getattr(readers, each), type)}


@pytest.mark.parametrize("case", CASES)
def test_a_reader_reads_the_same_beside_files_about_the_data(data, registered, case):
    write, reader = CASES[case]
    write(data)
    clean, found = reader(data), layouts.describe(data, scan(data))
    expected = [clean[n] for n in range(NUM)]
    litter(data)
    littered = layouts.describe(data, scan(data))
    assert littered["layout"] == found["layout"] != "files"
    assert littered["num_examples"] == found["num_examples"]
    for path in (data, registered(data)):
        dataset = reader(path)
        assert len(dataset) == NUM and same([dataset[n] for n in range(NUM)], expected)


@pytest.mark.parametrize("name", ABOUT)
def test_a_file_about_the_data_is_known_by_its_name(name):
    assert not is_data(name) and not is_data(f"train/{name}")


@pytest.mark.parametrize("name", DATA)
def test_data_of_a_similar_name_is_data(name):
    assert is_data(name) and is_data(f"train/{name}")


def test_a_file_that_is_given_by_its_path_is_read_whatever_its_name(data):
    (data / "README.txt").write_text("a\nb\n")
    (data / ".hidden").write_text("c\n")
    assert [TextLines(data / "README.txt")[n] for n in range(2)] == ["a", "b"]
    assert TextLines(data / ".hidden")[0] == "c"


@pytest.mark.parametrize("reader", [ParquetRows, TextLines, ImageFolder])
def test_a_directory_without_data_is_refused_with_what_it_holds(data, reader):
    litter(data)
    with pytest.raises(DataError, match=r"data has no files of data: .* are about the data"):
        reader(data)


def test_the_text_of_the_recipe_characters_is_that_of_the_data(data):
    (data / "a.txt").write_text("first, ")
    (data / "b.txt").write_text("second")
    litter(data)
    text = _text_of_files(Directory.of(data))
    assert bytes(text.tolist()) == b"first, second" and text.dtype == torch.uint8
