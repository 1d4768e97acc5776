"""The file of a submission: YAML with `kind`, `config` and the other FIELDS."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainops.plain import JsonObject
from trainops.plain_yaml import UNREADABLE, lines_of, parsed, reason, unsendable

FIELDS = ("kind", "name", "tags", "priority", "queue", "project", "config")

STUDY_FIELDS = ("design", "metric", "mode")  # of the file of a study, besides FIELDS


class FileProblem(ValueError):
    """What is wrong with a file; `line` is 0 where no line is known."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


@dataclass(frozen=True, slots=True)
class SubmissionFile:
    """The body of a request to submit, and the line of each field by its path."""

    body: JsonObject
    lines: Mapping[str, int]


def read(text: str, *, also: Sequence[str] = ()) -> SubmissionFile:
    """Read a file with the fields of FIELDS, and `also` these.

    Raises FileProblem: it is not YAML of plain values, or has unknown fields.
    """
    try:
        data, node = parsed(text)
        lines = dict(lines_of(node, ""))
    except UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        raise FileProblem(f"not YAML: {reason(error)}", mark.line + 1 if mark else 0) from error
    if not isinstance(data, dict):
        raise FileProblem(
            f"must contain fields such as kind and config, not {description_of(data)}"
        )
    _require_known(data, lines, (*FIELDS, *also))
    for path, why in unsendable(data, ""):
        raise FileProblem(f"{path}: {why}", lines.get(path, 1))
    return SubmissionFile(data, lines)


def _require_known(
    data: Mapping[str, object], lines: Mapping[str, int], known: Sequence[str]
) -> None:
    for name in data:
        if name not in known:
            hint = "" if "config" in data else " Does it belong under config:?"
            raise FileProblem(
                f"{name}: there is no such field; allowed: {', '.join(known)}.{hint}",
                lines[str(name)],
            )
    if not isinstance(data.get("config", {}), dict):
        given = description_of(data["config"])
        raise FileProblem(f"config: must contain fields, not {given}", lines["config"])


def description_of(value: object) -> str:
    """Return what a value is, for an error."""
    names = {
        dict: "fields",
        list: "a list",
        str: "text",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(type(value), "a number")


def places(path: str) -> Iterator[str]:
    """Yield a dotted path, then those of the fields around it, the nearest first."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        yield ".".join(names[:length])


def line_at(lines: Mapping[str, int], path: str) -> int:
    """Return the line of a field, by its path in the file or in the config; 0: it has none."""
    return lines.get(f"config.{path}") or lines.get(path, 0)
