"""What is submitted: a YAML file, then the values of --set; and where each field stands."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from trainops.client.problems import ExitCode, Problem, Refused
from trainops.plain import JsonObject
from trainops.plain_yaml import UNREADABLE, parsed, reason, unsendable
from trainops.submission_file import FileProblem, description_of, line_at, places
from trainops.submission_file import read as read_file

MAX_FILE_BYTES = 4 * 1024**2


@dataclass(slots=True)
class Submission:
    """The body of a POST, and which line of which source each field came from."""

    body: JsonObject
    source: str
    lines: dict[str, int] = field(default_factory=dict)
    was_set: dict[str, str] = field(default_factory=dict)  # path in config → as typed

    def assign(self, typed: str) -> None:
        """Apply one --set PATH=VALUE; the path starts inside config, the value is YAML.

        Raises:
            Problem: it is not of this form, or goes through something that holds no fields.
        """
        path, equals, text = typed.partition("=")
        names = path.strip().split(".")
        if not equals or not all(names):
            raise _wrong_set(typed, "allowed: PATH=VALUE, for example epochs=5")
        if names[0] == "config":
            raise _wrong_set(typed, f"paths start inside config: {'.'.join(names[1:])}={text}")
        try:
            value = parsed(text)[0]
        except UNREADABLE as error:
            raise _wrong_set(typed, f"the value is not YAML: {reason(error)}") from error
        for _, why in unsendable(value, path):
            raise _wrong_set(typed, why)
        _assign(self.body.setdefault("config", {}), names, value, typed)
        self.was_set[".".join(names)] = typed

    def section(self, name: str) -> JsonObject:
        """Return the fields under `name`, added if missing. Raises Problem: it is no mapping."""
        return section_of(self.body, name, self.source)

    def add_tags(self, tags: Sequence[str]) -> None:
        """Append to the tags of the file; the server refuses tags that are no list."""
        given = self.body.get("tags") or []
        if isinstance(given, list):
            self.body["tags"] = [*given, *tags]

    def explain(self, refused: Refused) -> Problem:
        """Return the server's refusal with the line of the file, or the --set, it is about."""
        if not refused.fields:
            return refused
        problems = [f"{self._place(path)}{path}: {text}" for path, text in refused.fields.items()]
        first, *others = problems
        return Problem(first, refused.exit_code, hints=tuple(others))

    def _place(self, path: str) -> str:
        for part in places(path):
            if part in self.was_set:
                return f"--set {self.was_set[part]}: "
            if line := line_at(self.lines, part):
                return f"{self.source}:{line}: "
        return f"{self.source}: "


def read(path: Path, *, also: Sequence[str] = ()) -> Submission:
    """Read a file of a submission (see `submission_file`), which may have the fields `also`.

    Raises:
        Problem: it cannot be read, is not YAML of plain values, or has unknown fields.
    """
    try:
        found = read_file(_text(path), also=also)
    except FileProblem as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise Problem(f"{place}: {error.why}", ExitCode.USAGE) from error
    return Submission(found.body, str(path), dict(found.lines))


def _text(path: Path) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise Problem(f"{path} is larger than {MAX_FILE_BYTES} bytes", ExitCode.USAGE)
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(
            f"{path}: byte {error.start} is not UTF-8; a YAML file is text", ExitCode.USAGE
        ) from error
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}", ExitCode.USAGE) from error


def section_of(target: JsonObject, name: str, source: str) -> JsonObject:
    """Return the fields under `name` in `target`, added if missing. Raises Problem."""
    section = target.get(name)
    if section is None:
        section = target[name] = {}
    if not isinstance(section, dict):
        raise Problem(
            f"{source}: {name}: must contain fields, not {description_of(section)}", ExitCode.USAGE
        )
    return section


def _assign(target: object, names: list[str], value: object, typed: str) -> None:
    *outer, last = names
    for depth, name in enumerate(outer):
        target = _step(target, name, typed, ".".join(names[:depth]))
    if isinstance(target, list):
        target[_index(target, last, typed)] = value
    elif isinstance(target, dict):
        target[last] = value
    else:
        raise _wrong_set(typed, f"{'.'.join(outer)} is {description_of(target)} and has no fields")


def _step(target: object, name: str, typed: str, walked: str) -> object:
    if isinstance(target, list):
        return target[_index(target, name, typed)]
    if isinstance(target, dict):
        return target.setdefault(name, {})
    raise _wrong_set(typed, f"{walked} is {description_of(target)} and has no fields")


def _index(target: Sequence[object], name: str, typed: str) -> int:
    if name.isascii() and name.isdigit() and int(name) < len(target):
        return int(name)
    raise _wrong_set(typed, f"{name!r} is not an index of a list of {len(target)} (the first is 0)")


def _wrong_set(typed: str, why: str) -> Problem:
    return Problem(f"--set {typed}: {why}", ExitCode.USAGE)
