"""Small data of every layout, and how each is read."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from trainops.learning.readers import (
    ArrayRows,
    ArrowRows,
    ImageFolder,
    ImagePairs,
    JsonLines,
    ParquetRows,
    TarShards,
    TextLines,
)

NUM = 12  # examples of each


def pixels(number, *, channels=3, size=8):
    """Return an image that no other has."""
    rng = np.random.default_rng(number)
    image = rng.integers(0, 256, (size, size, channels), dtype=np.uint8)
    return image if channels == 3 else image[..., 0]


def save_image(path, number, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(number, **options)).save(path)


def image_folders(root):
    for n in range(NUM):
        save_image(root / f"class {n % 3}" / f"{n:03d}.png", n)


def image_pairs(root):
    for n in range(NUM):
        save_image(root / "images" / f"{n:03d}.png", n)
        save_image(root / "masks" / f"{n:03d}.png", n, channels=1)


def parquet(root, *, group=2):
    for file in range(3):
        numbers = [file * 4 + n for n in range(4)]
        table = pa.table({"number": numbers, "name": [f"row {n}" for n in numbers]})
        pq.write_table(table, root / f"part-{file}.parquet", row_group_size=group)


def npy(root):
    np.save(root / "x.npy", np.arange(NUM * 6, dtype=np.float32).reshape(NUM, 2, 3))
    np.save(root / "y.npy", np.arange(NUM, dtype=">i8"))


def npz(root):
    x, y = np.arange(NUM * 6, dtype=np.float32).reshape(NUM, 2, 3), np.arange(NUM)
    np.savez(root / "both.npz", x=x, y=y)


def json_lines(root):
    for file in range(2):
        lines = [json.dumps({"number": file * 6 + n, "text": "é" * n}) for n in range(6)]
        (root / f"{file}.jsonl").write_text("\n".join(lines) + ("\n" if file else ""))


def text(root):
    (root / "a.txt").write_bytes(b"".join(b"line %d\r\n" % n for n in range(6)))
    (root / "b.txt").write_text("\n".join(["", "ö", "", "line 9", "line 10", "line 11"]))


def tar_shards(root, *, num=NUM):
    for shard in range(2):
        with tarfile.open(root / f"{shard}.tar", "w") as archive:
            for n in range(shard * num // 2, (shard + 1) * num // 2):
                image = io.BytesIO()
                Image.fromarray(pixels(n)).save(image, "PNG")
                parts = {"png": image.getvalue(), "cls": b"%d" % (n % 3), "json": b"[%d]" % n}
                for part, content in parts.items():
                    member = tarfile.TarInfo(f"images/{n:03d}.{part}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def arrow(root):
    """Write what `datasets.Dataset.save_to_disk` writes."""
    files = []
    for file in range(2):
        name = f"data-{file:05d}-of-00002.arrow"
        table = pa.table({"number": list(range(file * 6, file * 6 + 6)), "name": ["a"] * 6})
        with pa.ipc.new_stream(str(root / name), table.schema) as stream:
            stream.write_table(table, max_chunksize=4)
        files.append({"filename": name})
    (root / "state.json").write_text(json.dumps({"_data_files": files, "_split": None}))
    (root / "dataset_info.json").write_text("{}")


CASES = {
    "image_folders": (image_folders, ImageFolder),
    "image_pairs": (image_pairs, ImagePairs),
    "parquet": (parquet, ParquetRows),
    "npy": (npy, ArrayRows),
    "npz": (npz, ArrayRows),
    "json_lines": (json_lines, JsonLines),
    "text": (text, TextLines),
    "tar_shards": (tar_shards, TarShards),
    "arrow": (arrow, ArrowRows),
}
LAYOUTS = {"npy": "arrays", "npz": "arrays"}  # of cases that are named otherwise
