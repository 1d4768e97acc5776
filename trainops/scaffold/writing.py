"""Write a package of a recipe from the templates of a form.

A template is a file whose name ends in .txt. NAME in a path and the placeholders in a text are
replaced (`string.Template`).
"""

import keyword
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from string import Template

from trainops.paths import CLONE, COMMAND
from trainops.recipes import recipes

TEMPLATES = Path(__file__).resolve().parent / "templates"
COMMON, SUFFIX = "common", ".txt"
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
PIP = ".venv/bin/pip" if CLONE else "pip"
# A form, one way to write a recipe, is a folder of templates.
EXTRAS = frozenset({"lightning", "transformers"})  # forms that need the extra of their name
FORMS = tuple(sorted({each.name for each in TEMPLATES.iterdir() if each.is_dir()} - {COMMON}))


class NotWritten(Exception):
    """Nothing was written; the message has the reason."""


def write_package(name: str, form: str, parent: Path) -> list[Path]:
    """Write the package into a new directory `parent`/`name`; return its files.

    Raises NotWritten.
    """
    if form not in FORMS:
        raise NotWritten(f"form: got {form!r}; allowed: {', '.join(FORMS)}")
    directory = parent / name
    _require_free(name, directory)
    values = {
        "name": name,
        "requirement": f"trainops[{form}]" if form in EXTRAS else "trainops",
        "label": name.replace("_", " ").capitalize(),
        "pip": PIP,
        "command": COMMAND,
    }
    try:
        directory.mkdir()
    except OSError as error:
        raise NotWritten(f"{directory}: {error.strerror}") from error
    try:
        return list(_write(directory, (COMMON, form), values))
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise NotWritten(f"{error.filename}: {error.strerror}") from error


def next_commands(name: str) -> dict[str, str]:
    """Return the commands that follow, by what they do."""
    return {
        "install": f"{PIP} install --no-deps -e {name}",
        "restart": f"{COMMAND} up    (after Ctrl-C, if it is running)",
        "check": f"{COMMAND} recipes check {name}",
        "run": f"{COMMAND} run {name}/{name}.yaml --follow",
    }


def _require_free(name: str, directory: Path) -> None:
    """Raise NotWritten unless the name can be that of a new package and recipe."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        allowed = "a lower-case Python name of at most 40 characters"
        raise NotWritten(f"name: got {name!r}; allowed: {allowed}")
    if name in recipes():
        raise NotWritten(f"name: got {name!r}; a recipe of this name is registered")
    if directory.exists():
        raise NotWritten(f"{directory} exists; choose another name")
    if find_spec(name) is not None:
        raise NotWritten(f"name: got {name!r}; a module of this name is installed")


def _write(directory: Path, folders: tuple[str, ...], values: dict[str, str]) -> Iterator[Path]:
    for folder in folders:
        for template in sorted((TEMPLATES / folder).rglob(f"*{SUFFIX}")):
            relative = str(template.relative_to(TEMPLATES / folder)).removesuffix(SUFFIX)
            target = directory / relative.replace("NAME", values["name"])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(Template(template.read_text("utf-8")).substitute(values), "utf-8")
            yield target
