"""The YAML of a new operation or study as its page shows it.

It is the file that the commands `run` and `studies run` submit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.operations.api.exchange import SubmissionFields
from apps.operations.api.serializers import SubmissionSerializer
from apps.operations.api.studies import StudySubmissionFields, StudySubmissionSerializer
from trainops import operation_yaml
from trainops.errors import DomainError
from trainops.http.errors import flatten
from trainops.kind import KINDS
from trainops.recipes import Recipe, recipes
from trainops.runtime.errors import ConfigError
from trainops.submission_file import STUDY_FIELDS, FileProblem, line_at, places, read

MAX_CHARS = 256 * 1024  # PyYAML reads some ten thousand a second


@dataclass
class ConfigFile:
    """A file as it was typed, with its problems by line; 0: no line is known."""

    text: str
    problems: list[tuple[int, str]] = field(default_factory=list)
    lines: Mapping[str, int] = field(default_factory=dict)
    has_design: bool = False

    def body(self) -> SubmissionFields | StudySubmissionFields:
        """Return the arguments of a submission; those of a study have a design.

        Raises FileProblem and ConfigError.
        """
        if len(self.text) > MAX_CHARS:
            raise FileProblem(f"more than {MAX_CHARS} characters; submit it by command or API")
        found = read(self.text, also=STUDY_FIELDS)
        self.lines = found.lines
        self.has_design = not found.body.keys().isdisjoint(STUDY_FIELDS)
        serializer = (StudySubmissionSerializer if self.has_design else SubmissionSerializer)(
            data=found.body
        )
        if not serializer.is_valid():
            raise ConfigError(dict(flatten(serializer.errors)))
        fields: SubmissionFields | StudySubmissionFields = serializer.validated_data
        return fields

    def refuse(self, error: FileProblem | ConfigError | DomainError) -> None:
        """Note what is wrong, with its line."""
        if isinstance(error, FileProblem):
            self.problems = [(error.line, error.why)]
        elif isinstance(error, ConfigError):
            self.refuse_fields(error.errors)
        else:
            self.refuse_fields(error.details.get("fields") or {"": error.message})

    def refuse_fields(self, errors: Mapping[str, str]) -> None:
        self.problems = sorted(
            (self._line(path), f"{path}: {why}" if path else why) for path, why in errors.items()
        )

    def _line(self, path: str) -> int:
        return next(filter(None, (line_at(self.lines, part) for part in places(path))), 0)


def written(
    kind: str,
    config: Mapping[str, object],
    own: Mapping[str, str],
    study: Mapping[str, object] | None = None,
) -> ConfigFile:
    """Return the file of what a form contains; `own` as typed, empty values left out.

    study: the design, the metric and the mode of a study.
    """
    priority = own["priority"].strip()
    is_number = priority.removeprefix("-").isdecimal()
    text = operation_yaml.written(
        kind,
        own["name"],
        config,
        tags=[tag.strip() for tag in own["tags"].split(",") if tag.strip()],
        priority=int(priority) if is_number else priority,
        queue=own["queue"].strip(),
        project=own["project"].strip(),
        **(study or {}),
    )
    return ConfigFile(text, has_design=study is not None)


def recipe_of(body: SubmissionFields) -> tuple[Recipe, dict[str, str]]:
    """Return the recipe that a body names, and what is wrong with its config, by path.

    Raises ConfigError: it names no recipe of its kind, so no form shows it.
    """
    kind = body["kind"]
    known = recipes(kind)
    name = body["config"].get("recipe")
    KINDS.require_computed(kind)
    if not isinstance(name, str) or name not in known:
        raise ConfigError({"recipe": f"got {str(name)[:80]!r}; allowed: {', '.join(known)}"})
    try:
        KINDS[kind].parse_config(body["config"])
    except ConfigError as error:
        return known[name], dict(error.errors)
    return known[name], {}
