"""What is submitted: a YAML file, then the values of --set; and where each field stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainops.cli.plain_yaml import UNREADABLE, lines_of, parsed, reason, unsendable
from trainops.cli.problems import ExitCode, Problem, Refused

FIELDS = ("kind", "name", "tags", "priority", "queue", "config")
MAX_FILE_BYTES = 4 * 1024**2


@dataclass(slots=True)
class Submission:
    """The body of a POST, and which line of which source each field came from."""

    body: dict[str, Any]
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
            raise _wrong_set(typed, "write it as PATH=VALUE, for example epochs=5")
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

    def explain(self, refused: Refused) -> Problem:
        """Return the server's refusal with the line of the file, or the --set, it is about."""
        if not refused.fields:
            return refused
        problems = [f"{self._place(path)}{path}: {text}" for path, text in refused.fields.items()]
        first, *others = problems
        return Problem(first, refused.exit_code, hints=tuple(others))

    def _place(self, path: str) -> str:
        names = path.split(".")
        for length in range(len(names), 0, -1):
            part = ".".join(names[:length])
            if part in self.was_set:
                return f"--set {self.was_set[part]}: "
            for known in (f"config.{part}", part):
                if known in self.lines:
                    return f"{self.source}:{self.lines[known]}: "
        return f"{self.source}: "


def read(path: Path, *, also: Sequence[str] = ()) -> Submission:
    """Read a file of the form {kind, name, tags, priority, queue, config: {...}}, and `also` these.

    Raises:
        Problem: it cannot be read, is not YAML of plain values, or has fields that nobody knows.
    """
    text = _text(path)
    try:
        data, node = parsed(text)
        lines = dict(lines_of(node, ""))
    except UNREADABLE as error:
        raise Problem(f"{_at(path, error)}: not YAML: {reason(error)}", ExitCode.USAGE) from error
    if not isinstance(data, dict):
        raise Problem(
            f"{path}: must hold fields such as kind and config, not {_kind(data)}", ExitCode.USAGE
        )
    _require_known(data, path, lines, (*FIELDS, *also))
    for field_path, why in unsendable(data, ""):
        raise Problem(f"{path}:{lines.get(field_path, 1)}: {field_path}: {why}", ExitCode.USAGE)
    return Submission(data, str(path), lines)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # it may be a pipe of the shell's
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


def _require_known(
    data: Mapping[str, Any], path: Path, lines: Mapping[str, int], known: Sequence[str]
) -> None:
    for name in data:
        if name not in known:
            hint = "" if "config" in data else " Does it belong under config:?"
            raise Problem(
                f"{path}:{lines[str(name)]}: {name}: there is no such field; "
                f"allowed: {', '.join(known)}.{hint}",
                ExitCode.USAGE,
            )
    if not isinstance(data.get("config", {}), dict):
        raise Problem(
            f"{path}:{lines['config']}: config: must hold fields, not {_kind(data['config'])}",
            ExitCode.USAGE,
        )


def _assign(target: Any, names: list[str], value: Any, typed: str) -> None:
    *outer, last = names
    for depth, name in enumerate(outer):
        target = _step(target, name, typed, ".".join(names[:depth]))
    if isinstance(target, list):
        target[_index(target, last, typed)] = value
    elif isinstance(target, dict):
        target[last] = value
    else:
        raise _wrong_set(typed, f"{'.'.join(outer)} is {_kind(target)} and holds no fields")


def _step(target: Any, name: str, typed: str, walked: str) -> Any:
    if isinstance(target, list):
        return target[_index(target, name, typed)]
    if isinstance(target, dict):
        return target.setdefault(name, {})
    raise _wrong_set(typed, f"{walked} is {_kind(target)} and holds no fields")


def _index(target: list[Any], name: str, typed: str) -> int:
    if name.isascii() and name.isdigit() and int(name) < len(target):
        return int(name)
    raise _wrong_set(typed, f"{name!r} is no place in a list of {len(target)} (the first is 0)")


def _wrong_set(typed: str, why: str) -> Problem:
    return Problem(f"--set {typed}: {why}", ExitCode.USAGE)


def _kind(value: Any) -> str:
    names = {
        dict: "fields",
        list: "a list",
        str: "text",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(type(value), "a number")


def _at(path: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"{path}:{mark.line + 1}" if mark else str(path)
