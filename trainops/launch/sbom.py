"""`python3 -m trainops sbom`: what this installation consists of, as CycloneDX JSON.

The distributions are read from the environment that runs, not from a list: the document names what
is installed. Files that come with trainops and belong to others are named in static/vendor.
"""

import argparse
import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainops import paths
from trainops.launch import environment, hashes
from trainops.paths import COMMAND

DESCRIPTION = """\
Print a software bill of materials (CycloneDX 1.6, JSON): all installed Python distributions with
versions, licences and dependencies, and the vendored files of the web pages.
"""
FORMAT, FORMAT_VERSION = "CycloneDX", "1.6"
OWN = "trainops"
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*")
VENDORED = re.compile(r"^\| ([\w.-]+) \| (\S+)[^|]* \| (\d[\w.]*) \| ([\w.-]+) \|$", re.MULTILINE)
FILE_HASH = re.compile(r"^\| ([\w.-]+)/(\S+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def sbom(arguments: Sequence[str]) -> int:
    """Print the document, or write it. Raises CannotStart where there is no environment."""
    parser = argparse.ArgumentParser(prog=f"{COMMAND} sbom", description=DESCRIPTION)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there")
    chosen = parser.parse_args(arguments)
    environment.require(["sbom", *arguments])
    text = json.dumps(document(distributions()), indent=2)
    if chosen.out is None:
        print(text)
    else:
        chosen.out.write_text(text + "\n")
    return 0


def document(installed: Iterable[Distribution]) -> dict[str, Any]:
    """Return the bill of materials of these distributions and of the vendored files."""
    found = {hashes.normal(each.name): each for each in installed if each.name}
    others = {name: found[name] for name in sorted(found) if name != OWN}
    readme = (paths.STATIC / "vendor" / "README.md").read_text()
    version = environment.version()
    own = {
        "type": "application", "bom-ref": _purl(OWN, version), "name": OWN, "version": version,
        "purl": _purl(OWN, version), "licenses": [{"license": {"id": "Apache-2.0"}}],
    }  # fmt: skip
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": FORMAT,
        "specVersion": FORMAT_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
            "component": own,
        },
        "components": [*map(_component, others.values()), *_vendored(readme)],
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [_ref(each) for each in others.values()]},
            *(
                {"ref": _ref(each), "dependsOn": sorted(map(_ref, _required(each, others)))}
                for each in others.values()
            ),
        ],
    }


def _component(distribution: Distribution) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _ref(distribution),
        "name": distribution.name,
        "version": distribution.version,
        "purl": _ref(distribution),
    }
    if expression := _field(distribution, "License-Expression"):
        component["licenses"] = [{"expression": expression[0]}]
    elif name := _licence(distribution):
        component["licenses"] = [{"license": {"name": name}}]
    return component


def _licence(distribution: Distribution) -> str:
    """Return the name of a licence: of a classifier, else the first line of the field."""
    classifiers = (each.split(" :: ") for each in _field(distribution, "Classifier"))
    named = [each[-1] for each in classifiers if each[0] == "License"]
    return ", ".join(named) or "".join(_field(distribution, "License")).partition("\n")[0][:100]


def _field(distribution: Distribution, name: str) -> list[str]:
    return distribution.metadata.get_all(name) or []


def _required(
    distribution: Distribution, installed: dict[str, Distribution]
) -> Iterator[Distribution]:
    """Yield what it requires, as far as it is installed, without its extras."""
    names = set()
    for requirement in distribution.requires or ():
        if (found := REQUIREMENT.match(requirement)) and "extra ==" not in requirement:
            names.add(hashes.normal(found[0]))
    yield from (installed[name] for name in names if name in installed)


def _vendored(readme: str) -> Iterator[dict[str, Any]]:
    files = FILE_HASH.findall(readme)
    for folder, package, version, licence in VENDORED.findall(readme):
        purl = f"pkg:npm/{quote(package, safe='/')}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": package,
            "version": version,
            "purl": purl,
            "licenses": [{"license": {"id": licence}}],
            "components": [
                {
                    "type": "file",
                    "bom-ref": f"static/vendor/{folder}/{name}",
                    "name": name,
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                }
                for of_folder, name, digest in files
                if of_folder == folder
            ],
        }


def _ref(distribution: Distribution) -> str:
    return _purl(hashes.normal(distribution.name), distribution.version)


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{quote(version, safe='')}"
