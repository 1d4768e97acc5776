"""The hashes of all files of all distributions in constraints.txt.

pip chooses the versions by constraints.txt, and reports its choice with the hash of each file. What
it then installs are exactly these distributions, each file of a distribution in hashes.txt compared
before it is unpacked for the installation. Not compared: builds with a local version (2.13.0+cpu)
whose hash is not in hashes.txt, as they come from an index that the user configured; what only the
extras gcs and azure bring; what pip runs while it chooses, which for a distribution without a wheel
is its build. Standard library only.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trainops.launch.refusal import CannotStart

FILE = "hashes.txt"
UNLOCKED_EXTRAS = frozenset({"azure", "gcs"})  # what they install is not in constraints.txt
PIN = re.compile(r"^([\w.-]+)==([\w.+!]+)", re.MULTILINE)
NAME = re.compile(r"[\w.-]+")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
SHA256 = "sha256"
Hashes = Mapping[tuple[str, str], list[str]]  # by normalized name and public version


def read(root: Path) -> Hashes:
    """Return the hashes of each pinned distribution. Raises CannotStart where the file is away."""
    try:
        text = (root / FILE).read_text()
    except OSError as error:
        raise CannotStart(f"{root / FILE} cannot be read: {error.strerror}.") from error
    pins = list(PIN.finditer(text))
    ends = [*(each.start() for each in pins[1:]), len(text)]
    return {
        (normal(pin[1]), pin[2]): HASH.findall(text, pin.end(), end)
        for pin, end in zip(pins, ends, strict=True)
    }


def locked(
    report: Mapping[str, Any], hashes: Hashes, roots: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return requirements with hashes for what pip chose, and those that are not compared.

    `report`: of `pip install --dry-run --report`. `roots`: the requirements of the extras whose
    distributions are not pinned, by name. Raises CannotStart where anything else has no hashes.
    """
    names = {name for name, _ in hashes}
    unpinned = _reachable(report, roots) - names
    with_hashes, without, unknown = [], [], []
    for each in report["install"]:
        name, version = each["metadata"]["name"], each["metadata"]["version"]
        public, _, local = version.partition("+")
        found = hashes.get((normal(name), public))
        if found and (not local or _hash_of(each) in found):
            with_hashes.append(" ".join([f"{name}=={version}", *map("--hash={}".format, found)]))
        elif found or normal(name) in unpinned:
            without.append(f"{name}=={version}")
        else:
            unknown.append(f"{name}=={version}")
    if unknown:
        raise CannotStart(
            f"{FILE} has no hashes of {', '.join(unknown)}, which the package index asks for. "
            "Nothing was installed."
        )
    return with_hashes, without


def _hash_of(chosen: Mapping[str, Any]) -> str:
    """Return the hash of the file that pip chose, as hashes.txt has it; empty if not reported."""
    archive = chosen.get("download_info", {}).get("archive_info", {})
    digest = archive.get("hashes", {}).get(SHA256)
    return f"{SHA256}:{digest}" if digest else ""


def _reachable(report: Mapping[str, Any], roots: Collection[str]) -> set[str]:
    """Return the names that these distributions need, directly or not, and theirs."""
    needs = {
        normal(each["metadata"]["name"]): [
            normal(name) for name in named(each["metadata"].get("requires_dist", []))
        ]
        for each in report["install"]
    }
    found: set[str] = set()
    waiting = list(map(normal, roots))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs.get(name, [])
    return found


def named(requirements: Collection[str]) -> list[str]:
    """Return the names of requirements."""
    return [found[0] for each in requirements if (found := NAME.match(each))]


def normal(name: str) -> str:
    """Return a name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
