"""How a configuration is read: strictly, with errors a person can act on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from trainops.errors import MAX_PROBLEMS
from trainops.runtime.errors import ConfigError

Mark = TypeVar("Mark")
MAX_SHOWN = 80  # characters of what was given


class IsDataset:
    """Marks a field that names an uploaded dataset."""


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

    def __get_pydantic_core_schema__(self, *_: Any) -> CoreSchema:
        return core_schema.str_schema(pattern=self.pattern)

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, str]:
        told = {"type": "string", "format": "model", "pattern": self.pattern, "x-kind": self.kind}
        return told | ({"x-recipe": self.recipe} if self.recipe else {})


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


class Strict(BaseModel):
    """A frozen model that refuses unknown fields, wrong types, NaN and infinities."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Return the validated model. Raises ConfigError, which names every wrong field."""
        if not isinstance(raw, Mapping):
            raise ConfigError({"": f"got {_shown(raw)}; must be an object of named fields"})
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False)[:MAX_PROBLEMS]
            num_more = error.error_count() - len(told)
            raise ConfigError(dict(_explain(cls, each) for each in told), num_more) from error

    def datasets(self) -> dict[str, str]:
        """Return the ids of the uploaded datasets that this model names, with their fields."""
        found = list(_marked(self, IsDataset))
        return {name: field for _, field, name in reversed(found)}

    def dataset_ids(self) -> list[str]:
        """Return the ids of the uploaded datasets that this model names."""
        return list(dict.fromkeys(name for _, _, name in _marked(self, IsDataset)))

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

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        """Return what does not fit the datasets, by field; empty where all is well.

        `columns` holds for each dataset id its described columns ({"name", "type", ...}). What
        only the rows can tell is found when the job reads them.
        """
        return {}


class CheckpointConfig(Strict):
    """When checkpoints are taken, and which of them are kept."""

    every_steps: int | None = Field(None, ge=1, description="A checkpoint after so many steps")
    every_seconds: float = Field(300.0, gt=0, description="A checkpoint after so many seconds")
    least_seconds: float = Field(
        0.0, ge=0, description="So many seconds lie between two that are due after steps"
    )
    keep_last: int = Field(2, ge=1, le=1000, description="The newest ones that are kept")
    keep_best: int = Field(1, ge=0, le=1000, description="The best ones that are kept")
    keep_after_success: bool = Field(False, description="Keep them when the operation completed")
    self_check: bool = Field(
        True, description="A second process loads each attempt's first checkpoint and compares"
    )


class RestartConfig(Strict):
    """What the house does by itself when an attempt is lost."""

    policy: Literal["never", "on_worker_loss", "on_failure"] = "on_worker_loss"
    max_restarts: int = Field(3, ge=0, le=100, description="Without progress in between")


class LimitsConfig(Strict):
    """How long things may take before the house steps in; all in seconds."""

    cancel_timeout_seconds: float = Field(60.0, gt=0)
    stall_timeout_seconds: float = Field(1800.0, gt=0)
    max_duration_seconds: float | None = Field(None, gt=0)


class ResourcesConfig(Strict):
    """What a worker must have; one that has less never takes the operation. GB as makers count."""

    gpu_memory_gb: float | None = Field(
        None, gt=0, le=10_000, description="Its GPU has at least so much memory; this asks for one"
    )
    memory_gb: float | None = Field(
        None, gt=0, le=100_000, description="The worker's machine has at least so much memory"
    )


class OperationConfig(Strict):
    """What every kind of operation can be told."""

    # What a fork may tell differently: it changes nothing that the state is made of.
    FORKABLE: ClassVar[frozenset[str]] = frozenset(
        {"device", "threads", "deterministic", "checkpoint", "restart", "limits", "resources"}
    )

    seed: int = Field(0, ge=0, le=2**63 - 1, description="Where every random number starts")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU if there is one"
    )
    threads: int = Field(
        2, ge=1, le=256, description="CPU threads; another number, other last bits"
    )
    deterministic: bool = Field(True, description="Only algorithms that repeat bit for bit")
    checkpoint: CheckpointConfig = CheckpointConfig()
    restart: RestartConfig = RestartConfig()
    limits: LimitsConfig = LimitsConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Return the validated config. Raises ConfigError; also for what cannot be had together."""
        config = super().parse(raw)
        if config.device == "cpu" and config.resources.gpu_memory_gb is not None:
            problem = f"got {config.resources.gpu_memory_gb:g}, but device is cpu; allowed with "
            raise ConfigError({"resources.gpu_memory_gb": f"{problem}auto and cuda"})
        return config

    @property
    def is_distributed(self) -> bool:
        """Whether others do its work: then it only waits for them."""
        return False

    def require_forkable(self, before: "OperationConfig") -> None:
        """Raise ConfigError for what a fork from a state of `before` may not tell otherwise."""
        told, kept = self.model_dump(mode="json"), before.model_dump(mode="json")
        allowed = ", ".join(sorted(self.FORKABLE))
        problems = {
            name: f"got {_shown(value)}; a fork keeps {_shown(kept.get(name))}; "
            f"allowed to differ: {allowed}"
            for name, value in told.items()
            if name not in self.FORKABLE and value != kept.get(name)
        }
        if problems:
            raise ConfigError(problems)

    def code(self) -> Sequence[str]:
        """Return what else must be imported before the job is made ("package.module:name")."""
        return ()


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


def _mark(kind: type[Mark], annotation: Any, metadata: Sequence[Any] = ()) -> Mark | None:
    for mark in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(mark, kind):
            return mark
    inner = (_mark(kind, part) for part in get_args(annotation))
    return next((mark for mark in inner if mark is not None), None)


def _explain(cls: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """Return (dotted path, what was given and what is allowed)."""
    path = ".".join(_short(str(part)) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return path, _unknown(cls, error["loc"])
    if error["type"] == "missing":
        return path, "nothing was given; it is required"
    if error["type"] == "dict_type":
        return path, f"got {_shown(error['input'])}; {_pairs(cls, error['loc'])}"
    allowed = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return path, f"got {_shown(error['input'])}; {allowed}"


def _unknown(cls: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    owner = _model_at(cls, loc[:-1])
    if owner is None:
        return "there is no such field"
    near = get_close_matches(str(loc[-1])[:MAX_SHOWN], owner.model_fields, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no such field{hint}; allowed: {', '.join(owner.model_fields)}"


def _pairs(cls: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    owner = _model_at(cls, loc[:-1])
    field = owner.model_fields.get(str(loc[-1])) if owner else None
    example = f", such as {field.examples[0]}" if field and field.examples else ""
    return f"must be pairs of a name and a value{example}"


def _model_at(cls: type[BaseModel], loc: Sequence[int | str]) -> type[BaseModel] | None:
    owner = cls
    for name in loc:
        field = owner.model_fields.get(str(name))
        nested = field and field.annotation
        if not (isinstance(nested, type) and issubclass(nested, BaseModel)):
            return None
        owner = nested
    return owner


def _shown(value: Any) -> str:
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
