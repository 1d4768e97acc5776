"""What others wrote is as it was published: each file has the digest that the table names."""

import hashlib
import re

from trainops.paths import STATIC

FOLDER = STATIC / "vendor"
LINE = re.compile(r"^\| (\S+/\S+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_every_vendored_file_is_the_one_in_the_table():
    named = dict(LINE.findall((FOLDER / "README.md").read_text()))
    there = {str(path.relative_to(FOLDER)): path for path in FOLDER.glob("*/*")}
    assert named.keys() == there.keys()
    for name, path in there.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == named[name], name


def test_every_package_has_its_licence():
    for folder in filter(lambda path: path.is_dir(), FOLDER.iterdir()):
        assert (folder / "LICENSE").read_text().strip(), folder.name


def test_nothing_points_to_source_maps_or_elsewhere():
    for path in STATIC.rglob("*.[cj]s*"):
        text = path.read_text()
        assert "sourceMappingURL" not in text, path.name
        assert "@import" not in text, path.name
