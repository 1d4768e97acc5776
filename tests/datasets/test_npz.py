"""NPZ: images with labels or masks, or a refusal that names the array; nothing in it is run."""

import io
import json
import os
import zipfile
from base64 import b64decode
from contextlib import suppress

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.datasets.tables.options import TableLimits
from apps.datasets.tables.refusals import TableRefused

IMAGES = np.arange(6 * 9 * 8, dtype=np.uint8).reshape(6, 9, 8)
LABELS = np.array([2, 0, 1, 1, 0, 2])
MASKS = IMAGES > 100


def npz(*, packed=False, **arrays) -> bytes:
    sink = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(sink, **arrays)
    return sink.getvalue()


def archive(files, compression=zipfile.ZIP_STORED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as packed:
        for name, content in files:
            packed.writestr(name, content)
    return sink.getvalue()


def npy(values) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


def header(shape, descr="|u1", order=False) -> bytes:
    sink = io.BytesIO()
    fields = {"descr": descr, "fortran_order": order, "shape": shape}
    np.lib.format.write_array_header_1_0(sink, fields)
    return sink.getvalue()


def pictures(table, column="image"):
    """Return the stored images (N, H, W, C), or masks (N, H, W)."""
    described = table.columns[column]
    dtype = json.loads(pq.read_metadata(table.path).metadata[b"trainops"])["image"]["dtype"]
    dtype = dtype if column == "image" else "uint8"
    return np.stack([np.frombuffer(each, dtype) for each in table.rows[column]]).reshape(
        -1, *described["shape"]
    )


@pytest.mark.parametrize("packed", [False, True])
def test_images_with_labels_masks_and_clients(read, packed):
    clients = np.array(["north", "south", "north", "north", "south", "north"])
    table = read(npz(images=IMAGES, labels=LABELS, masks=MASKS, client=clients, packed=packed))
    assert table.types == {
        "image": "image", "label": "integer", "mask": "mask", "client": "category",
    }  # fmt: skip
    assert table.description["format"] == "npz" and table.description["num_rows"] == 6
    assert np.array_equal(pictures(table), IMAGES[..., None])
    assert np.array_equal(pictures(table, "mask"), MASKS)
    assert table.rows["label"] == LABELS.tolist() and table.rows["client"] == clients.tolist()
    assert table.columns["image"] == table.columns["image"] | {
        "shape": [9, 8, 1], "min": 0, "max": 255, "note": "9 x 8 pixels, 1 channel, uint8",
    }  # fmt: skip
    assert table.columns["label"]["counts"] == [{"value": n, "count": 2} for n in (0, 1, 2)]
    assert table.columns["client"]["counts"] == [
        {"value": "north", "count": 4}, {"value": "south", "count": 2},
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["u1", "u2", ">u2", "<f4", ">f8"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_the_same_images_give_the_same_bytes_however_they_lie(read, dtype, channels):
    last = np.arange(3 * 8 * 10 * channels).reshape(3, 8, 10, channels).astype(dtype)
    first = np.ascontiguousarray(last.transpose(0, 3, 1, 2))
    labels = np.arange(3)
    one = read(npz(images=last, labels=labels))
    assert one.columns["image"]["shape"] == [8, 10, channels]
    assert np.array_equal(pictures(one), last)
    before = one.path.read_bytes()
    assert read(npz(images=first, labels=labels, packed=True)).path.read_bytes() == before
    if channels == 1:
        assert read(npz(images=last[..., 0], labels=labels)).path.read_bytes() == before


def test_a_set_larger_than_a_row_group_is_read_piece_by_piece(read, monkeypatch):
    monkeypatch.setattr("apps.datasets.tables.images.GROUP_BYTES", 2 * 72)
    table = read(npz(images=IMAGES, labels=LABELS))
    assert pq.ParquetFile(table.path).num_row_groups == 3
    assert np.array_equal(pictures(table), IMAGES[..., None])


def test_the_preview_shows_the_first_images(read):
    many = np.concatenate([IMAGES] * 5)
    table = read(npz(images=many, labels=np.arange(30), masks=many > 9))
    assert len(table.description["preview"]) == 24
    image, label, mask = table.description["preview"][7]
    assert label == 7
    for picture in (image, mask):
        kind, _, content = picture.partition(",")
        assert kind == "data:image/png;base64"
        assert b64decode(content).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        (np.array([[[0], [128]], [[255], [1]]], np.uint8), [[[0], [128]], [[255], [1]]]),
        (np.array([[[-1.0], [1.0]]], np.float32), [[[0], [255]]]),
        (np.zeros((1, 1, 3), np.uint8), [[[0, 0, 0]]]),
    ],
)
def test_a_thumbnail_is_a_png_of_the_pixels(values, lines):
    import zlib

    from apps.datasets.tables.thumbnails import thumbnail

    content = b64decode(thumbnail(values).partition(",")[2])
    packed = content[content.index(b"IDAT") + 4 : content.index(b"IEND") - 8]
    rows = zlib.decompress(packed)
    assert list(rows) == [byte for line in lines for byte in [0, *np.ravel(line)]]


def test_a_large_image_is_shown_small():
    from apps.datasets.tables.thumbnails import thumbnail

    content = b64decode(thumbnail(np.zeros((500, 200, 3), np.uint8)).partition(",")[2])
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    assert (width, height) == (20, 48)


WRONG = [
    ("MISSING_ARRAY", {"labels": LABELS}, "no images; it has labels"),
    ("MISSING_ARRAY", {"images": IMAGES}, "labels, masks or both"),
    ("UNKNOWN_ARRAY", {"images": IMAGES, "target": LABELS}, "'target.npy'; allowed: images, la"),
    ("WRONG_SHAPE", {"images": IMAGES[0], "labels": LABELS}, "shape (9, 8); allowed: (N, H, W),"),
    ("WRONG_SHAPE", {"images": IMAGES[:, :7], "labels": LABELS}, "at least 8"),
    ("WRONG_SHAPE", {"images": np.zeros((6, 9, 9, 5), "u1"), "labels": LABELS}, "1 to 4"),
    ("WRONG_SHAPE", {"images": np.zeros((6, 3, 3, 9), "u1"), "labels": LABELS}, "(6, 3, 3, 9)"),
    ("WRONG_SHAPE", {"images": IMAGES[:0], "labels": LABELS[:0]}, "N of at least 1"),
    ("WRONG_SHAPE", {"images": IMAGES, "labels": LABELS[:, None]}, "(6, 1); allowed: (N,)"),
    ("WRONG_SHAPE", {"images": IMAGES, "masks": MASKS[:, :, :7]}, "allowed: (N, 9, 8)"),
    ("WRONG_SHAPE", {"images": IMAGES, "masks": MASKS[..., None]}, "allowed: (N, 9, 8)"),
    ("WRONG_SHAPE", {"images": np.array(3), "labels": LABELS}, "the shape ()"),
    ("WRONG_LENGTH", {"images": IMAGES, "labels": LABELS[:5]}, "'labels' has 5 rows"),
    ("WRONG_LENGTH", {"images": IMAGES, "masks": MASKS[:5]}, "'masks' has 5 rows"),
    ("WRONG_LENGTH", {"images": IMAGES, "labels": LABELS, "client": LABELS[1:]}, "'client' has"),
    ("WRONG_DTYPE", {"images": IMAGES.astype(bool), "labels": LABELS}, "'images' holds bool"),
    ("WRONG_DTYPE", {"images": IMAGES.astype("i8"), "labels": LABELS}, "'images' holds int64"),
    ("WRONG_DTYPE", {"images": IMAGES.astype("c8"), "labels": LABELS}, "complex64; allowed: u"),
    ("WRONG_DTYPE", {"images": IMAGES, "labels": LABELS * 0.5}, "float64; allowed: integers or"),
    ("WRONG_DTYPE", {"images": IMAGES, "labels": LABELS.astype("S")}, "'labels' holds |S"),
    ("WRONG_DTYPE", {"images": IMAGES, "masks": MASKS * 1.0}, "allowed: bool or integers of 0"),
    ("WRONG_DTYPE", {"images": IMAGES, "labels": np.zeros(6, "i4,i4")}, "not plain numbers"),
    ("WRONG_VALUES", {"images": IMAGES, "masks": MASKS * 255}, "[0, 255] in row 1"),
    ("WRONG_VALUES", {"images": IMAGES, "labels": LABELS.astype("u8") + 2**63}, "64 bits"),
    ("WRONG_ORDER", {"images": np.asfortranarray(IMAGES), "labels": LABELS}, "ascontiguousarray"),
]


@pytest.mark.parametrize(("code", "arrays", "said"), WRONG, ids=lambda each: str(each)[:40])
def test_what_is_wrong_is_reported_with_the_array_and_what_is_allowed(refused, code, arrays, said):
    assert said in refused(code, npz(**arrays)).message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_images_that_are_not_finite_are_refused_with_the_row(refused, value):
    images = IMAGES.astype(np.float64)
    images[4, 2, 2] = value
    error = refused("NOT_FINITE", npz(images=images, labels=LABELS))
    assert error.details["given"] == [4] and error.field == "arrays.images"


class Explosive:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_objects_are_refused_and_never_unpickled(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.array([Explosive()] * 6, dtype=object)
    error = refused("WRONG_DTYPE", npz(images=IMAGES, labels=labels))
    assert "never unpickled" in error.message
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "name", ["../images.npy", "/images.npy", "sub/images.npy", "images.npy/", "IMAGES.npy",
             "images", "..\\images.npy"]
)  # fmt: skip
def test_names_with_paths_and_other_files_are_refused(refused, name):
    files = [("labels.npy", npy(LABELS)), (name, npy(IMAGES))]
    refused("UNKNOWN_ARRAY", archive(files))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_refused(refused):
    files = [("images.npy", npy(IMAGES)), ("labels.npy", npy(LABELS))] * 2
    assert "more than once" in refused("UNKNOWN_ARRAY", archive(files)).message


def test_a_bomb_is_refused_by_what_it_declares(refused):
    count = 10**5
    files = [("images.npy", header((count, 8, 8)) + bytes(64 * count)), ("labels.npy", npy(LABELS))]
    bomb = archive(files, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 20_000
    error = refused("TOO_LARGE_UNPACKED", bomb, TableLimits(max_image_bytes=10**6))
    assert error.details["given"] > 64 * count and error.details["allowed"] == 10**6


@pytest.mark.parametrize("shape", [(10**9, 8, 8), (7, 9, 8), (5, 9, 8), (-6, -9, 8), (2**62, 8, 8)])
def test_a_header_that_lies_about_the_size_is_refused(refused, shape):
    lying = header(shape) + IMAGES.tobytes()
    files = [("images.npy", lying), ("labels.npy", npy(LABELS))]
    assert "images" in refused("INVALID_NPZ", archive(files)).message


def test_an_archive_that_lies_about_the_size_is_refused(refused):
    """Header and directory agree on 60 images; there are 6."""
    begun = header((60, 9, 8))
    packed = archive([("images.npy", begun + IMAGES.tobytes()), ("labels.npy", npy([0] * 60))])
    sizes = (len(begun) + 6 * 72, len(begun) + 60 * 72)
    there, said = (size.to_bytes(4, "little") for size in sizes)
    assert packed.count(there) == 4, "packed and unpacked, at the file and in the directory"
    assert "images" in refused("INVALID_NPZ", packed.replace(there, said)).message


@pytest.mark.parametrize("limits", [TableLimits(max_rows=5), TableLimits(max_row_bytes=71)])
def test_too_many_and_too_large_images_are_refused(refused, limits):
    code = "TOO_MANY_ROWS" if limits.max_rows == 5 else "TOO_LARGE_ROW"
    refused(code, npz(images=IMAGES, labels=LABELS), limits)


def test_options_of_tables_are_refused(refused):
    error = refused("NOT_FOR_IMAGES", npz(images=IMAGES, labels=LABELS), delimiter=";")
    assert error.field == "delimiter"


def test_other_archives_are_no_images(refused):
    refused("COMPRESSED_FILE", archive([("table.csv", "a,b\n1,2\n")]))


@pytest.mark.parametrize("descr", ["<U0", "|O", "<M8[s]", "<i3", "[('a', '<i4')]", "|V4"])
def test_headers_of_any_dtype_end_as_a_refusal(read, descr):
    files = [("labels.npy", header((6,), descr)), ("images.npy", npy(IMAGES))]
    with pytest.raises(TableRefused):
        read(archive(files))


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused_and_nothing_else(read, data):
    content = bytearray(npz(images=IMAGES, labels=LABELS, packed=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(60, len(content)))
    with suppress(TableRefused):
        read(bytes(content[:cut]))
