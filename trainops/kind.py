"""Kinds of operations: one frozen descriptor each, found by the entry point group "trainops.kinds".

A kind is a whole folder: config, job, recipes, file formats and panels of its page. The rest of
trainops knows kinds only by their descriptors. A descriptor names its parts by strings, which are
imported when they are needed: the web process reads it and must not import torch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from trainops.lazy import load
from trainops.registrations import registered
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import ConfigError
from trainops.runtime.job import ResumableJob
from trainops.runtime.ledger import Ledger
from trainops.runtime.ledger_fields import LedgerFields
from trainops.runtime.position import Position, Positions, with_step
from trainops.runtime.ranks import ALONE, Devices
from trainops.runtime.subtasks import Subtask, SubtaskPort

GROUP = "trainops.kinds"
INCLUDE_CODE = "trainops.runtime.provenance:include"
SEED_ALL = "trainops.runtime.reproducibility:seed_all"  # a string: it imports torch
Port = Literal["ledger", "subtasks", "devices"]


class Ports(TypedDict, total=False):
    """Further arguments of a job; None outside of an attempt."""

    ledger: Ledger | None
    subtasks: SubtaskPort | None
    devices: Devices


class KindError(Exception):
    """A registered kind cannot be used; the message names the entry point."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Which operation of a kind is better: what studies, lists and best checkpoints compare.

    `metric` is a dotted path in the result. `mode` is "min" or "max"; empty: the field `mode` of
    the config.
    """

    metric: str = "best.value"
    mode: Literal["", "min", "max"] = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number of the installation that is the default of a config field.

    Its variable is TRAINOPS_ and the name in capitals (trainops.thresholds). Kinds may share one;
    they then declare equal ones.
    """

    name: str
    field: str  # the path of the field: section.name
    default: int  # above 0
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of the operation page that only operations of one kind have.

    `view` names a function of the page's subject (apps.dashboard.parts.Subject). It returns the
    context of `template`, or None where there is nothing to show. The panel is drawn again
    whenever its HTML changes; `script`, a static JavaScript module, then has its `draw` called with
    the panel's element.
    """

    name: str  # unique on the page
    template: str
    view: str
    # "page": above the charts; "below": below them; "files": above the files of the checkpoints
    place: Literal["page", "below", "files"] = "page"
    script: str = ""
    shows_result: bool = False  # the page then does not repeat the result as JSON
    shows_figures: bool = False  # the page then omits the best and the latest value of metrics

    def context(self, subject: object) -> Mapping[str, object] | None:
        return cast(Mapping[str, object] | None, load(self.view)(subject))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """An operation of a minute or so, on data that come with it: `up --demo` submits it."""

    name: str
    config: Mapping[str, object]
    table: Callable[[], str] | None = None  # a CSV; its dataset id becomes `dataset` of the config


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of operation."""

    name: str
    label: str
    description: str
    order: int = 100  # its place in lists; the name decides between equals
    unit: str  # what one step is called, before any job exists

    config: str  # an OperationConfig; imports no torch
    # A ResumableJob; imports torch, so only an attempt's process loads it. Empty: its operations
    # are imported runs of other tools and cannot be submitted; its config describes one of them.
    job: str = ""
    positions: str  # a module: what a checkpoint's JSON state says about it; imports no torch
    adapt: str = ""  # a function: what a fork's config changes in the state; empty: nothing
    recipes: tuple[str, ...] = ()  # built-in Recipe objects

    demo: str = ""  # a Demo; empty: `up --demo` shows nothing of this kind

    objective: Objective = Objective()
    columns: tuple[str, ...] = ()  # paths in the result that the table of a study shows
    # Path of the config field that says how long it runs; of several, the first that a config has.
    length: str | tuple[str, ...] = ""
    has_weights: bool = False  # whether its job is WarmStarting
    thresholds: tuple[Threshold, ...] = ()  # its own, beside those of every kind
    days: str = ""  # a function of (config, columns): first and last day; for walk-forward studies

    ports: frozenset[Port] = frozenset()  # what make_job is given besides config and inputs
    ledger: str = ""  # a LedgerFields, of its entries; required with the port "ledger"
    ledger_used: Callable[[Mapping[str, object]], bool] = lambda config: True  # of a JSON config
    subtask: str = ""  # the job of a subtask; required with the port "subtasks"
    group: str = "group"  # what a group of subtasks is called

    files: str = ""  # a KindFiles: the files of another tool; empty: there is none
    panels: tuple[Panel, ...] = ()
    web: str = ""  # a package with the folders `templates` and `static` of its panels
    urls: str = ""  # a module with the addresses below an operation's page that its panels use

    @property
    def is_computed(self) -> bool:
        """Whether workers compute its operations; those of others are imported."""
        return bool(self.job)

    def parse_config(self, raw: Mapping[str, object]) -> OperationConfig:
        """Return the validated config, defaults filled in. Raises ConfigError."""
        return self._config_class().parse(raw)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the config, for forms and documentation."""
        return self._config_class().model_json_schema()

    def forkable(self) -> frozenset[str]:
        """Return the fields of the config that a fork may change."""
        return self._config_class().FORKABLE

    def dataset_ids(self, config: OperationConfig) -> list[str]:
        """Return the ids of the datasets that make_job needs as inputs."""
        return config.dataset_ids()

    def length_of(self, config: Mapping[str, object]) -> tuple[str, int] | None:
        """Return the path and the value of the field that holds the length; None: there is none.

        A number below 1 is no length: -1 of transformers' max_steps means no limit.
        """
        for path in (self.length,) if isinstance(self.length, str) else self.length:
            found: object = config
            for name in path.split("."):
                found = found.get(name) if isinstance(found, Mapping) else None
            if isinstance(found, int) and found > 0:
                return path, found
        return None

    def uses_ledger(self, config: Mapping[str, object]) -> bool:
        """Whether the job of this config (as JSON) writes to the ledger."""
        return "ledger" in self.ports and self.ledger_used(config)

    def ledger_fields(self) -> LedgerFields:
        """Return the fields of its ledger's entries. Raises KindError where it has no ledger."""
        if not self.ledger:
            raise KindError(f"the kind {self.name!r} names no fields of ledger entries")
        return cast(LedgerFields, load(self.ledger))

    def mode(self, config: Mapping[str, object]) -> str:
        """Return "min" or "max": which values of the objective are better under this config."""
        if self.objective.mode:
            return self.objective.mode
        default = self._config_class().model_fields["mode"].default
        return str(config.get("mode", default))

    def span(self, config: OperationConfig, columns: DescribedColumns) -> tuple[date, date]:
        """Return the first and the last day of the data. Raises ConfigError."""
        if not self.days:
            allowed = ", ".join(name for name, each in KINDS.items() if each.days) or "no kind"
            problem = f"got one for {self.name}; allowed: {allowed}"
            raise ConfigError({"design.walk_forward": problem})
        return cast(tuple[date, date], load(self.days)(config, columns))

    def web_directory(self, name: Literal["templates", "static"]) -> Path | None:
        """Return the folder of its panels' templates or static files, if it has one."""
        spec = find_spec(self.web) if self.web else None
        places = [Path(each) / name for each in (spec and spec.submodule_search_locations) or ()]
        return next((each for each in places if each.is_dir()), None)

    def position(self, state: Mapping[str, object], step: int) -> Position:
        """Return the position of a checkpoint, by its JSON state."""
        return self._positions().position(state, step)

    def place(self, state: Mapping[str, object], step: int) -> str:
        """Return a position that names the step, too: "epoch 82 (step 1890)"."""
        return with_step(self.position(state, step).text, self.unit, step)

    @property
    def measures_best(self) -> bool:
        """Whether states know the best value of the monitored metric; else none is the best."""
        return bool(self._positions().BEST)

    def best_ever(self, state: Mapping[str, object]) -> float | None:
        """Return the best value of the monitored metric in a state; None: not known."""
        found: object = state
        for name in self._positions().BEST or ("",):
            found = found.get(name) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else None

    @property
    def summary(self) -> tuple[str, ...]:
        """The keys of a checkpoint's JSON state that lists show."""
        return self._positions().SUMMARY

    @property
    def summary_read(self) -> tuple[str, ...]:
        """The keys of the JSON state that `position` and the summary read."""
        return (*self.summary, *self._positions().ALSO_READ)

    def make_job(
        self,
        config: OperationConfig,
        inputs: Mapping[str, Path] | None = None,
        ledger: Ledger | None = None,
        subtasks: SubtaskPort | None = None,
        devices: Devices | None = None,
    ) -> ResumableJob:
        """Make the job from freshly seeded random streams: its weights are drawn here.

        `inputs` maps each dataset id to its normalised Parquet file, and each operation whose
        model is used to its final checkpoint. `ledger`, `subtasks` and `devices` are given to kinds
        with these ports; without a ledger the job's own states remember what it recorded, without
        subtasks or devices all work is done in this process. Raises InputError.
        """
        ports: Ports = {"ledger": ledger} if "ledger" in self.ports else {}
        if "subtasks" in self.ports:
            ports["subtasks"] = subtasks
        if "devices" in self.ports:
            ports["devices"] = devices or ALONE
        job = self._loaded(self.job, config)(config, inputs or {}, **ports)
        load(INCLUDE_CODE)(config.code())  # once all of it is imported
        return cast(ResumableJob, job)

    def make_subtask(
        self,
        config: OperationConfig,
        inputs: Mapping[str, Path],
        ledger: Ledger | None,
        subtask: Subtask,
    ) -> ResumableJob:
        """Make the job of a subtask, as `make_job` makes the job of its parent."""
        ports: Ports = {"ledger": ledger} if "ledger" in self.ports else {}
        job = self._loaded(self.subtask, config)(config, inputs, subtask=subtask, **ports)
        load(INCLUDE_CODE)(config.code())
        return cast(ResumableJob, job)

    def group_of(self, state: Mapping[str, object], step: int) -> int | None:
        """Return the group whose subtasks start from a checkpoint with this JSON state."""
        return self.position(state, step).group

    def job_factory(
        self,
        config: OperationConfig,
        inputs: Mapping[str, Path] | None = None,
        ledger: Ledger | None = None,
    ) -> Callable[[], ResumableJob]:
        """Return make_job as the loop calls it: where errors of the job are expected."""
        return partial(self.make_job, config, inputs, ledger)

    def _loaded(self, job: str, config: OperationConfig) -> Any:
        """Import all modules of the job, and only then start the random streams."""
        for path in (job, *config.code()):
            load(path)
        load(SEED_ALL)(config.seed)  # importing draws numbers, but only once
        return load(job)

    def _positions(self) -> Positions:
        return cast(Positions, import_module(self.positions))

    def _config_class(self) -> type[OperationConfig]:
        return cast(type[OperationConfig], load(self.config))


class Registry(Mapping[str, Kind]):
    """The registered kinds by name, in the order of lists; found at the first use.

    Raises KindError.
    """

    def __getitem__(self, name: str) -> Kind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def computed(self) -> tuple[str, ...]:
        """The names of the kinds whose operations are submitted, and computed by workers."""
        return tuple(name for name, kind in self.items() if kind.is_computed)

    def require_computed(self, name: str) -> None:
        """Raise ConfigError for what cannot be submitted."""
        if name not in self.computed:
            what = "a kind that can be submitted" if name in self else "a kind"
            problem = f"{name!r} is not {what}; allowed: {', '.join(self.computed)}"
            raise ConfigError({"kind": problem})

    @cached_property
    def _kinds(self) -> Mapping[str, Kind]:
        found: dict[str, Kind] = {}
        for point in registered(GROUP):
            kind = load(point.value)
            if not isinstance(kind, Kind):
                raise KindError(f"{point.value} is a {type(kind).__name__}, not a Kind")
            if kind.name != point.name:
                named = f"{point.value} is named {kind.name!r}"
                raise KindError(f"{named}, its entry point {point.name!r}")
            if found.setdefault(kind.name, kind) != kind:
                raise KindError(f"two kinds are named {kind.name!r}")
        if not found:
            raise KindError(f"no kind of operation is registered in the group {GROUP!r}")
        return {each.name: each for each in sorted(found.values(), key=_place)}


def _place(kind: Kind) -> tuple[int, str]:
    return kind.order, kind.name


KINDS = Registry()
