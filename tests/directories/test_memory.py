"""A training by run.loader over a set ten times larger than a limit of memory on its processes."""

import io
import json
import os
import subprocess
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.memory import NO_HOLES
from trainops.paths import ROOT

pytestmark = pytest.mark.slow
LIMIT = 32 * 2**20  # bytes, for the second of two trainings in one process
SMALL, LARGE = LIMIT // 4, 10 * LIMIT  # bytes of data


def blocks(num_bytes, width):
    """Yield rows of this many bytes in all, in blocks of 2 MiB."""
    rng = np.random.default_rng(0)
    size = 2**19 // width
    for _ in range(num_bytes // 4 // width // size):
        yield rng.random((size, width), np.float32)


def write_arrays(root, num_bytes, width):
    with (root / "x.npy").open("wb") as file:
        shape = (num_bytes // 4 // width, width)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks(num_bytes, width):
            file.write(block.tobytes())


def write_parquet(root, num_bytes, width):
    names = [f"c{n}" for n in range(width)]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(root / "t.parquet", schema, use_dictionary=False) as writer:
        for block in blocks(num_bytes, width):
            writer.write_table(pa.table(dict(zip(names, block.T, strict=True)), schema=schema))


def write_shards(root, num_bytes, width):
    for shard, block in enumerate(blocks(num_bytes, width)):
        with tarfile.open(root / f"{shard:03d}.tar", "w") as archive:
            for number, row in enumerate(block):
                content = io.BytesIO()
                np.save(content, row)
                member = tarfile.TarInfo(f"{number:06d}.npy")
                member.size = content.tell()
                content.seek(0)
                archive.addfile(member, content)


def write_text(root, num_bytes, width):
    lines(root / "t.txt", num_bytes, width, "{}\n")


def write_json(root, num_bytes, width):
    lines(root / "t.jsonl", num_bytes, width, '{{"text": "{}"}}\n')


def lines(path, num_bytes, width, form):
    with path.open("w") as file:
        for number in range(num_bytes // 4 // width):
            file.write(form.format(chr(97 + number % 26) * 4 * width))


def write_images(root, num_bytes, width):
    side = round((width * 4 / 3) ** 0.5)
    image = Image.new("RGB", (side, side), "orange")
    for number in range(num_bytes // 4 // width):
        folder = root / f"class{number % 3}"
        folder.mkdir(exist_ok=True)
        image.save(folder / f"{number:06d}.bmp")


def write_arrow(root, num_bytes, width):
    """Write what `datasets.Dataset.save_to_disk` writes, in two files."""
    schema = pa.schema([("x", pa.binary())])
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name in names:
        with pa.ipc.new_stream(root / name, schema) as writer:
            for block in blocks(num_bytes // 2, width):
                rows = pa.array([row.tobytes() for row in block], pa.binary())
                writer.write_table(pa.table([rows], schema=schema))
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": n} for n in names]}))


CASES = {
    "arrays": (write_arrays, 4096),
    "parquet": (write_parquet, 64),
    "shards": (write_shards, 4096),
    "text": (write_text, 4096),
    "json_lines": (write_json, 4096),
    "images": (write_images, 49_152),  # of 256 x 256 pixels
    "arrow": (write_arrow, 4096),
    "whole": (write_arrays, 4096),
}


def measured(kind, root, num_workers=0):
    """Train on small and on large data of a kind; return how the process ended."""
    write, width = CASES[kind]
    for name, num_bytes in (("small", SMALL), ("large", LARGE)):
        (root / name).mkdir()
        write(root / name, num_bytes, width)
        assert sum(each.stat().st_size for each in (root / name).rglob("*.*")) > 0.98 * num_bytes
    program = [sys.executable, "-m", "tests.directories.measured_memory"]
    arguments = [kind, root / "small", root / "large", width, LIMIT, num_workers]
    env = os.environ | NO_HOLES | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    return subprocess.run(
        [*program, *map(str, arguments)],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "num_workers"),
    [*((each, 0) for each in CASES if each != "whole"), ("arrays", 2)],
)
def test_it_trains_on_all_rows_within_the_limit(data, record_property, kind, num_workers):
    ran = measured(kind, data, num_workers)
    assert ran.returncode == 0, ran.stderr
    num_rows, *grown = map(int, ran.stdout.split())
    record_property("grown_bytes", grown)
    assert num_rows == LARGE // 4 // CASES[kind][1] and max(grown) < LIMIT


def test_the_whole_set_at_once_does_not_fit(data):
    ran = measured("whole", data)
    assert ran.returncode and "Unable to allocate 320. MiB" in ran.stderr
