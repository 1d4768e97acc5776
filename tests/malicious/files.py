"""A generator of malicious files: what an attacker would send, and what chance does to bytes.

`generate(seed, directory, proof)` writes one file. A pickle in it that is obeyed makes the
directory `proof`.
"""

import io
import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tests.formats.originals import NAMES, save, tree, with_pickle

NAMES_OF_CODE = [
    b"os\nsystem", b"posix\nsystem", b"builtins\neval", b"builtins\nexec", b"subprocess\nPopen",
    b"torch\nload", b"numpy\nload", b"builtins\nbytearray", b"builtins\n__import__",
    b"torch.storage\n_load_from_bytes", b"numpy.core.multiarray\nfromfile", b"shutil\nrmtree",
    b"functools\npartial", b"operator\nattrgetter", b"types\nFunctionType", b"ctypes\nCDLL",
]  # fmt: skip
SIZES = [2**16, 2**20, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1]
CLAIMS = [10**9, 3 * 10**8, 2**31, 2**40]


class Bomb:
    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return (os.mkdir, (str(self.proof),))


class Generator:
    def __init__(self, seed, directory, proof):
        self.draw, self.directory, self.proof = random.Random(seed), directory, proof  # noqa: S311
        self.seed = seed

    def make(self):
        kind = self.draw.choice([*KINDS])
        path = self.directory / f"{self.seed:04d}-{kind.replace(' ', '-')}"
        return KINDS[kind](self, path.with_suffix(SUFFIXES.get(kind, ".pt")))

    def good(self, path):
        """A file that other tools write, or a small one of tensors."""
        name = self.draw.choice([*NAMES, "small", "small"])
        small = {"model_state_dict": {"a": torch.arange(9.0)}, "epoch": 1, "global_step": 2}
        return save(small if name == "small" else tree(name), path)

    def evil_pickle(self):
        """A pickle that acts, unfolds, nests, or asks for what is not there."""
        draw = self.draw
        text = pickle.dumps({"model_state_dict": {"x": Bomb(self.proof)}}, draw.randrange(6))
        call = b"c" + draw.choice(NAMES_OF_CODE) + b"\n"
        argument = b"X" + struct.pack("<I", len(str(self.proof))) + str(self.proof).encode()
        depth = draw.choice([100, 1000, 100_000, 1_000_000])
        numel = draw.choice(CLAIMS)
        return draw.choice(
            [
                text,
                b"\x80\x02}X\x01\x00\x00\x00x" + call + argument + b"\x85Rs.",
                b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".",
                b"\x80\x02" + b"}X\x01\x00\x00\x00x" * depth + b"s" * depth + b".",
                b"\x80\x02]q\x00" + b"(h\x00h\x00e" * 40 + b".",  # it holds itself
                b"\x80\x02]" + b"q\x00(h\x00h\x00tq\x00" * 60 + b"a.",  # doubled sixty times
                b"\x80\x02cbuiltins\nbytearray\nJ" + struct.pack("<i", 2**31 - 1) + b"\x85R.",
                b"\x80\x02" + b"K\x01" * draw.choice([10**4, 10**6]) + b".",
                b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"x.",
                b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
                bytes(draw.randrange(256) for _ in range(200)),
                tensor_of(numel, shape=numel, stride=0),
                tensor_of(9, shape=numel, stride=0),
                tensor_of(9, shape=numel, stride=1),
                tensor_of(9, shape=3, stride=10**9),
            ]
        )

    # Each of the following makes one file.

    def other_pickle(self, path):
        return with_pickle(self.good(path), self.evil_pickle())

    def bare_pickle(self, path):
        path.write_bytes(self.evil_pickle())
        return path

    def two_directories(self, path):
        """One directory right before the end, another one where the ZIP64 locator points.

        Readers disagree which of them counts: see CVE-2025-8291.
        """
        shown, shown_directory = parts_of(self.good(path), at=0)
        hidden, hidden_directory = parts_of(with_pickle(path, self.evil_pickle()), at=len(shown))
        if self.draw.random() < 0.3:
            shown_directory, hidden_directory = hidden_directory, shown_directory
        content = shown + hidden
        for directory in (hidden_directory, shown_directory):
            at = len(content)
            content += directory + end_64(directory, at)
        locator_at = len(shown + hidden + hidden_directory) + self.draw.choice([0, 0, 0, -56])
        content += struct.pack("<4sIQI", b"PK\x06\x07", 0, locator_at, 1)
        full = self.draw.choice([(2**16 - 1, 2**32 - 1, 2**32 - 1), (1, 1, 1)])
        content += struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, full[0], *full, 0)
        path.write_bytes(content)
        return path

    def gap(self, path):
        content = bytearray(self.good(path).read_bytes())
        at = self.draw.choice([0, len(content), self.draw.randrange(len(content))])
        content[at:at] = self.draw.choice(
            [b"\x00", b"PK\x03\x04", b"x" * 100, bytes(content[:300])]
        )
        path.write_bytes(content)
        return path

    def zip64(self, path):
        """Numbers of the ending records changed."""
        content = bytearray(self.good(path).read_bytes())
        at = len(content) - self.draw.randrange(2, 98)
        width, form = self.draw.choice([(2, "<H"), (4, "<I"), (8, "<Q")])
        value = self.draw.choice([0, 1, *SIZES, 2**64 - 1]) % 2 ** (8 * width)
        content[at : at + width] = struct.pack(form, value)
        path.write_bytes(content)
        return path

    def claim_of_size(self, path):
        """A compressed or a repeated record, or one that is declared larger."""
        content = self.good(path).read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
        sizes = {name: self.draw.choice([10, 10**6]) for name in names}
        sizes[self.draw.choice(names)] = self.draw.choice([10, 10**6, 3 * 10**7])
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, size in sizes.items():
                archive.writestr(name, bytes(size))
        return path

    def truncated(self, path):
        content = self.good(path).read_bytes()
        path.write_bytes(content[: self.draw.randrange(len(content))])
        return path

    def flipped(self, path):
        path.write_bytes(self.flip(self.good(path).read_bytes()))
        return path

    def flip(self, content):
        content = bytearray(content)
        for _ in range(self.draw.choice([1, 1, 3, 30])):
            content[self.draw.randrange(len(content))] ^= 1 << self.draw.randrange(8)
        return bytes(content)

    def table(self, path):
        columns = {"a": list(range(500)), "b": ["x", "y"] * 250, "c": [0.5] * 500}
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        path.write_bytes(self.flip(sink.getvalue()))
        return path

    def images(self, path):
        sink = io.BytesIO()
        save_npz = self.draw.choice([np.savez, np.savez_compressed])
        save_npz(sink, image=np.zeros((20, 8, 8), np.uint8), label=np.arange(20))
        content = sink.getvalue()
        header = f"'shape': ({self.draw.choice(SIZES)}, 8, 8), }}".encode()
        old = b"'shape': (20, 8, 8), }"
        if self.draw.random() < 0.5:
            content = content.replace(old + b" " * (len(header) - len(old)), header)
        else:
            content = self.flip(content)
        path.write_bytes(content)
        return path

    def csv(self, path):
        draw = self.draw
        encoding = draw.choice(["utf-16", "utf-16-le", "cp932"])
        content = draw.choice(
            [
                b"a,b\n" + b'"' * draw.choice([1, 1001]) + b"x,y\n" * 1000,
                b"a," * draw.choice([10, 5000]) + b"z\n1\n",
                ("a;b\n" + "1;\u4e2d\n" * 100).encode(encoding),
                b"a\n" + b"9" * draw.choice([400, 10**6]) + b"\n",
                b"a\n9999-12-31T23:59:59-14:00\n0001-01-01T00:00:00+14:00\n",
                b"a,b\n" + bytes(draw.randrange(256) for _ in range(2000)),
                b"\xef\xbb\xbf" * 3 + b"a\n1\n", b"\x00" * 100, b"a\r" * 1000,
            ]
        )  # fmt: skip
        path.write_bytes(self.flip(content) if draw.random() < 0.3 else content)
        return path

    def config(self, path):
        draw = self.draw
        depth = draw.choice([100, 5000, 100_000])
        text = draw.choice(
            [
                "a: " + "[" * depth, "a: " + "[" * depth + "]" * depth, "{a: " * depth,
                "a: &x [1]\nb: [" + "*x," * 1000 + "]", "!!python/object/apply:os.system ['true']",
                "a: 1\na: 2", "a: .inf", f"seed: {'9' * draw.choice([30, 5000])}",
                "kind: training\nconfig: {" + ",".join(f"f{n}: {n}" for n in range(10_000)) + "}",
                "\x00", "a: 0x" + "f" * 10_000, "? " * depth, "- " * depth,
                "a: !!binary " + "A" * 999,
                "%YAML 9.9\n---\na", json.dumps({"a": {"b": ["x" * 10**6]}}),
            ]
        )  # fmt: skip
        path.write_text(text, encoding="utf-8")
        return path


KINDS = {
    "other pickle": Generator.other_pickle,
    "bare pickle": Generator.bare_pickle,
    "two directories": Generator.two_directories,
    "gap": Generator.gap,
    "zip64": Generator.zip64,
    "claim of size": Generator.claim_of_size,
    "truncated": Generator.truncated,
    "flipped": Generator.flipped,
    "table": Generator.table,
    "images": Generator.images,
    "csv": Generator.csv,
    "config": Generator.config,
}
SUFFIXES = {"table": ".parquet", "images": ".npz", "csv": ".csv", "config": ".yaml"}


def parts_of(path, *, at):
    """Return the records of an archive, and its directory as if they began at this offset."""
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    num, size, begin = struct.unpack_from("<H2I", content, end + 10)
    directory, entry = bytearray(content[begin : begin + size]), 0
    for _ in range(num):
        (header_at,) = struct.unpack_from("<I", directory, entry + 42)
        struct.pack_into("<I", directory, entry + 42, header_at + at)
        entry += 46 + sum(struct.unpack_from("<3H", directory, entry + 28))
    return content[:begin], bytes(directory)


def end_64(directory, at):
    num = directory.count(b"PK\x01\x02")
    numbers = (44, 45, 45, 0, 0, num, num, len(directory), at)
    return struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", *numbers)


def tensor_of(numel, *, shape, stride):
    """A pickle of one tensor that looks at storage 0 of an archive."""

    def number(value):
        content = value.to_bytes(9, "little", signed=True)
        return b"\x8a" + bytes([len(content)]) + content

    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + number(numel) + b"tQ"
    )  # fmt: skip
    view = (
        b"K\x00"
        + number(shape)
        + b"\x85"
        + number(stride)
        + b"\x85\x89ccollections\nOrderedDict\n)R"
    )
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + view + b"tR"
    return b"\x80\x02}X\x10\x00\x00\x00model_state_dict}X\x01\x00\x00\x00a" + tensor + b"ss."


def generate(seed, directory, proof):
    return Generator(seed, Path(directory), Path(proof)).make()
