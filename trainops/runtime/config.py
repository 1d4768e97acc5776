"""How a configuration is read: strictly, with errors a person can act on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import CoreSchema, core_schema, to_jsonable_python

from trainops.errors import MAX_PROBLEMS
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config_errors import explain, shown
from trainops.runtime.durations import SECONDS, Duration, parse_duration
from trainops.runtime.errors import ConfigError

Mark = TypeVar("Mark")


@dataclass(frozen=True, slots=True)
class IsDataset:
    """Marks a field that names an uploaded dataset, or a registered directory."""

    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class IsModel:
    """Marks a text field that names a COMPLETED operation whose model is used."""

    kind: str
    recipe: str = ""  # by which it was trained; empty: by any
    shares: tuple[str, ...] = ()  # parameters of that recipe that are fields of this config, too

    def fits(self, kind: str, recipe: str) -> bool:
        return self.kind == kind and self.recipe in ("", recipe)

    @property
    def pattern(self) -> str:
        return rf"^op_{self.kind}_[0-9]{{8}}_[0-9]{{6}}_[0-9a-f]{{6}}$"

    def __get_pydantic_core_schema__(self, *_: object) -> CoreSchema:
        return core_schema.str_schema(pattern=self.pattern)

    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, str]:
        schema = {"type": "string", "format": "model", "pattern": self.pattern, "x-kind": self.kind}
        return schema | ({"x-recipe": self.recipe} if self.recipe else {})


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that a config uses: the path of its field, and what the operation must be."""

    field: str
    mark: IsModel


DATASET_ID_PATTERN = r"^ds_[0-9a-f]{16}$"
DatasetId = Annotated[
    str,
    StringConstraints(pattern=DATASET_ID_PATTERN),
    WithJsonSchema({"type": "string", "format": "dataset", "pattern": DATASET_ID_PATTERN}),
    IsDataset(),
]
DirectoryId = Annotated[
    str,
    StringConstraints(pattern=DATASET_ID_PATTERN),
    WithJsonSchema({"type": "string", "format": "directory", "pattern": DATASET_ID_PATTERN}),
    IsDataset(is_directory=True),
]


class Strict(BaseModel):
    """A frozen model that refuses unknown fields, wrong types, NaN and infinities."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> Self:
        """Return the validated model. Raises ConfigError, which names every wrong field."""
        if not isinstance(raw, Mapping):
            raise ConfigError({"": f"got {shown(raw)}; must be an object with named fields"})
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)[:MAX_PROBLEMS]
            num_more = error.error_count() - len(problems)
            raise ConfigError(dict(explain(cls, each) for each in problems), num_more) from error

    def defaults(self) -> dict[str, object]:
        """Return the defaults of its fields and sections as JSON; a required field has none."""
        found: dict[str, object] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if isinstance(value, Strict):
                found[name] = value.defaults()
            elif not field.is_required():
                default = field.get_default(call_default_factory=True, validated_data={})
                found[name] = to_jsonable_python(default)
        return found

    def datasets(self) -> dict[str, str]:
        """Return the ids of the datasets that this model names, with their fields."""
        found = list(_marked(self, IsDataset))
        return {name: field for _, field, name in reversed(found)}

    def dataset_ids(self) -> list[str]:
        """Return the ids of the datasets that this model names."""
        return list(dict.fromkeys(name for _, _, name in _marked(self, IsDataset)))

    def directory_ids(self) -> set[str]:
        """Return those of its datasets that must be registered directories."""
        return {name for mark, _, name in _marked(self, IsDataset) if mark.is_directory}

    def models(self) -> dict[str, NamedModel]:
        """Return the operations whose models this one uses by id, and what they must be."""
        return {name: NamedModel(field, mark) for mark, field, name in _marked(self, IsModel)}

    @classmethod
    def model_marks(cls) -> dict[str, IsModel]:
        """Return the fields that name a model, by their names."""
        marks = {
            name: _mark(IsModel, field.annotation, field.metadata)
            for name, field in cls.model_fields.items()
        }
        return {name: mark for name, mark in marks.items() if mark is not None}

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        """Return what does not fit the datasets, by field; empty where all is well.

        `columns` holds for each dataset id its described columns ({"name", "type", ...}). What
        only the rows can tell is found when the job reads them.
        """
        return {}


class CheckpointConfig(Strict):
    """When checkpoints are taken, and which of them are kept."""

    every_steps: int | None = Field(
        None, ge=1, description="Steps between checkpoints; by default steps trigger none."
    )
    every_seconds: float = Field(300.0, gt=0, description="Seconds between checkpoints.")
    least_seconds: float = Field(
        0.0, ge=0, description="Minimum seconds between step-triggered checkpoints."
    )
    keep_last: int = Field(2, ge=1, le=1000, description="Number of latest checkpoints to keep.")
    keep_best: int = Field(
        1, ge=0, le=1000, description="Number of best checkpoints to keep by each monitored metric."
    )
    keep_after_success: bool = Field(
        False, description="Keep the checkpoints after the operation completes."
    )
    self_check: bool = Field(
        True,
        description="Verify the first checkpoint of each attempt: a second process loads it and "
        "compares the next steps.",
    )


class RestartConfig(Strict):
    """Restart policy for attempts that are lost."""

    policy: Literal["never", "on_worker_loss", "on_failure"] = Field(
        "on_worker_loss", description="When a failed attempt is restarted."
    )
    max_restarts: int = Field(
        3, ge=0, le=100, description="Maximum consecutive restarts without progress."
    )


class LimitsConfig(Strict):
    """Time limits of an operation."""

    UNITS: ClassVar[tuple[str, ...]] = tuple(SECONDS)  # of max_duration

    cancel_timeout_seconds: float = Field(
        60.0,
        gt=0,
        description="Seconds that a cancel waits for a safe point before it kills the attempt.",
    )
    stall_timeout_seconds: float = Field(
        1800.0, gt=0, description="Seconds without a step after which the attempt is killed."
    )
    max_duration_seconds: float | None = Field(
        None,
        gt=0,
        description="Maximum total seconds of all attempts, without pauses; unlimited by default.",
    )
    max_duration: str | None = Field(
        None,
        description="Maximum total time of all attempts with its unit: 90s, 30m or 2h; unlimited "
        "by default.",
    )

    @field_validator("max_duration")
    @classmethod
    def _is_duration(cls, value: str | None) -> str | None:
        if value is not None:
            parse_duration(value, cls.UNITS)
        return value

    @property
    def max_progress(self) -> Duration | None:
        """The number of epochs or batches in max_duration; None if it is a time, or unlimited."""
        found = None if self.max_duration is None else parse_duration(self.max_duration)
        return None if found is None or found.seconds is not None else found


class ResourcesConfig(Strict):
    """What a worker must have; one that has less never takes the operation. GB as makers count."""

    gpu_memory_gb: float | None = Field(
        None,
        gt=0,
        le=10_000,
        description="Minimum GPU memory of the worker in GB (10^9 bytes); requires a GPU.",
    )
    memory_gb: float | None = Field(
        None,
        gt=0,
        le=100_000,
        description="Minimum memory of the worker's machine in GB (10^9 bytes).",
    )


@dataclass(frozen=True, slots=True)
class NodeRange:
    """The smallest and the largest number of nodes of an attempt."""

    smallest: int = 1
    largest: int = 1


class OperationConfig(Strict):
    """The fields that every kind of operation has."""

    # What a fork may tell differently: it changes nothing that the state is made of.
    FORKABLE: ClassVar[frozenset[str]] = frozenset({
        "device", "threads", "deterministic", "exact",
        "checkpoint", "restart", "limits", "resources",
    })  # fmt: skip

    NEUTRAL: ClassVar[frozenset[str]] = frozenset(
        {"exact", "checkpoint", "restart", "limits", "resources"}  # no effect on results
    )
    ROUNDING: ClassVar[frozenset[str]] = frozenset({"device", "threads", "deterministic"})

    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of all random number generators.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device to run on; auto uses a GPU if the worker has one."
    )
    threads: int = Field(
        2,
        ge=1,
        le=256,
        description="Number of CPU threads; changing it changes the last bits of the results.",
    )
    deterministic: bool = Field(
        True, description="Use only algorithms whose results are reproducible bit for bit."
    )
    exact: Literal["reported", "required"] = Field(
        "reported",
        description="Whether a resume that cannot be exact is reported in its receipt, or fails.",
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    restart: RestartConfig = RestartConfig()
    limits: LimitsConfig = LimitsConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> Self:
        """Return the validated config. Raises ConfigError; also for what cannot be had together."""
        config = super().parse(raw)
        if config.device == "cpu" and config.resources.gpu_memory_gb is not None:
            problem = (
                f"got {config.resources.gpu_memory_gb:g} with device cpu; allowed with device "
            )
            raise ConfigError({"resources.gpu_memory_gb": f"{problem}auto and cuda"})
        return config

    @property
    def is_distributed(self) -> bool:
        """Whether others do its work: then it only waits for them."""
        return False

    @property
    def num_processes(self) -> int:
        """How many processes of each node compute it, each in a slot; see the port "devices"."""
        return 1

    @property
    def num_nodes(self) -> NodeRange:
        """With how many workers an attempt may start; see the port "devices"."""
        return NodeRange()

    def require_forkable(self, before: "OperationConfig") -> None:
        """Raise ConfigError for what a fork from a state of `before` may not change."""
        wanted, kept = self.model_dump(mode="json"), before.model_dump(mode="json")
        allowed = ", ".join(sorted(self.FORKABLE))
        problems = {
            name: f"got {shown(value)}; a fork keeps {shown(kept.get(name))}; "
            f"allowed to differ: {allowed}"
            for name in dict.fromkeys((*wanted, *kept))
            if name not in self.FORKABLE and (value := wanted.get(name)) != kept.get(name)
        }
        if problems:
            raise ConfigError(problems)

    def continues(self, before: "OperationConfig", *, may_be_exact: bool = True) -> Sequence[str]:
        """Return sentences on how a fork from a state of `before` goes on under this config.

        may_be_exact: else the code was changed, an earlier resume was not exact, or none is
        certain to be: then no sentence promises it.
        """
        values = {name: value for name, _, value in differences(before, self)}
        changed = {name.partition(".")[0] for name in values}
        if not changed - self.NEUTRAL and not may_be_exact:
            return []
        if not changed - self.NEUTRAL and "limits.max_duration" in values:
            length = values["limits.max_duration"] or "unlimited"
            return [f"It continues exactly, as if limits.max_duration had been {length}."]
        if not changed - self.NEUTRAL:
            return ["It continues exactly: what differs has no effect on the results."]
        if not changed - self.NEUTRAL - self.ROUNDING:
            return ["It continues, but not exactly: what differs changes the last bits."]
        return ["What differs takes effect from this step on."]

    def code(self) -> Sequence[str]:
        """Return what else must be imported before the job is made ("package.module:name")."""
        return ()


def differences(before: Strict, after: Strict) -> list[tuple[str, object, object]]:
    """Return the fields that differ: their dotted paths and both values."""
    return list(_differences(before.model_dump(mode="json"), after.model_dump(mode="json")))


def shown_with(choice: str, *values: str) -> dict[str, JsonValue]:
    """Return what the schema of a field says that has an effect with some values of a choice only.

    Forms show the field with these values. With others it is accepted, too, without effect.
    """
    return {"x-with": {choice: [*values]}}


def _differences(
    before: Mapping[str, object], after: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object, object]]:
    for name in dict.fromkeys((*before, *after)):
        was, now = before.get(name), after.get(name)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _differences(was, now, f"{prefix}{name}.")
        elif was != now:
            yield f"{prefix}{name}", was, now


def _marked(
    model: BaseModel, kind: type[Mark], prefix: str = ""
) -> Iterator[tuple[Mark, str, str]]:
    """Yield each mark of this kind, the path of its field, and what the field names."""
    for name, field in type(model).model_fields.items():
        value, path = getattr(model, name), f"{prefix}{name}"
        mark = _mark(kind, field.annotation, field.metadata)
        if isinstance(value, BaseModel):
            yield from _marked(value, kind, f"{path}.")
        elif mark is not None:
            values = [value] if isinstance(value, str) else value or []
            yield from ((mark, path, each) for each in values)


def _mark(kind: type[Mark], annotation: object, metadata: Sequence[object] = ()) -> Mark | None:
    for mark in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(mark, kind):
            return mark
    inner = (_mark(kind, part) for part in get_args(annotation))
    return next((mark for mark in inner if mark is not None), None)
