"""The engines there are. Adding one is a folder and a line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from trainops.engines.config import OperationConfig
from trainops.engines.delegation import Delegates, Part
from trainops.engines.job import ResumableJob
from trainops.engines.position import Position, Positions
from trainops.engines.recipes import load
from trainops.engines.spending import PrivacyLedger

SEED_ALL = "trainops.engines.reproducibility:seed_all"  # a string: it imports torch


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of operation; its parts are named by strings and loaded when asked for."""

    label: str
    description: str
    unit: str  # what one step is called, before any job exists
    config: str  # imports no torch, so the web process can validate with it
    job: str  # imports torch; only the attempt's own process loads it
    positions: str  # a module: what it says of a checkpoint by its JSON state; imports no torch
    adapt: str = ""  # what a fork's config changes in the state; "" where nothing
    spends_privacy: bool = False  # its job takes a ledger, too
    part: str = ""  # the job of a part that is done elsewhere; "" where all is done in one place

    def parse_config(self, raw: Mapping[str, Any]) -> OperationConfig:
        """Return the validated config, defaults filled in. Raises ConfigError."""
        return self._config_class().parse(raw)

    def position(self, state: Mapping[str, Any], step: int) -> Position:
        """Return where a checkpoint stands, by its JSON state."""
        return self._positions().position(state, step)

    def best_ever(self, state: Mapping[str, Any]) -> float | None:
        """Return the best value of the monitored metric that a state has seen; None: not known."""
        found: Any = state
        for name in self._positions().BEST or ("",):
            found = found.get(name) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else None

    @property
    def summary(self) -> tuple[str, ...]:
        """The keys of a checkpoint's JSON state that lists show."""
        return self._positions().SUMMARY

    @property
    def summary_read(self) -> tuple[str, ...]:
        """The keys that `position` and the summary look at."""
        return (*self.summary, *self._positions().ALSO_READ)

    def _positions(self) -> Positions:
        return cast(Positions, import_module(self.positions))

    def forkable(self) -> frozenset[str]:
        """Return the fields of the config that a fork may tell differently."""
        return self._config_class().FORKABLE

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the config, for forms and documentation."""
        return self._config_class().model_json_schema()

    def dataset_ids(self, config: OperationConfig) -> list[str]:
        """Return the ids of the datasets that make_job will want as inputs."""
        return config.dataset_ids()

    def make_job(
        self,
        config: OperationConfig,
        inputs: Mapping[str, Path] | None = None,
        ledger: PrivacyLedger | None = None,
        delegates: Delegates | None = None,
    ) -> ResumableJob:
        """Make the job from freshly seeded random streams: its weights are drawn here.

        `inputs` maps each dataset id to its normalised Parquet file, and each operation whose
        model is used to its final checkpoint. `ledger`, of a kind that spends privacy, remembers
        what was spent; without one the job's own states do. `delegates`, of a kind that has parts,
        have them done elsewhere; without them all is done here. Raises InputError.
        """
        more: dict[str, Any] = {"ledger": ledger} if self.spends_privacy else {}
        more |= {"delegates": delegates} if self.part else {}
        return cast(ResumableJob, self._loaded(self.job, config)(config, inputs or {}, **more))

    def make_part(
        self,
        config: OperationConfig,
        inputs: Mapping[str, Path],
        ledger: PrivacyLedger | None,
        part: Part,
    ) -> ResumableJob:
        """Make the job of a part, as make_job does the whole one's."""
        return cast(ResumableJob, self._loaded(self.part, config)(config, inputs, ledger, part))

    def job_factory(
        self,
        config: OperationConfig,
        inputs: Mapping[str, Path] | None = None,
        ledger: PrivacyLedger | None = None,
    ) -> Callable[[], ResumableJob]:
        """Return make_job as the loop wants it: called where the job's errors are expected."""
        return partial(self.make_job, config, inputs, ledger)

    def _loaded(self, job: str, config: OperationConfig) -> Any:
        """Import all that the job is made of, and only then start the random streams."""
        for path in (job, *config.code()):
            load(path)
        load(SEED_ALL)(config.seed)  # importing draws numbers, but only once
        return load(job)

    def _config_class(self) -> type[OperationConfig]:
        return cast(type[OperationConfig], load(self.config))


ENGINES = {
    "training": Engine(
        label="Training",
        description="A neural network learns from examples, one optimizer step after another",
        unit="step",
        config="trainops.engines.training.config:TrainingConfig",
        job="trainops.engines.training.job:TrainingJob",
        positions="trainops.engines.training.position",
        adapt="trainops.engines.training.adapting:adapt",
    ),
    "backtest": Engine(
        label="Backtest",
        description="A strategy trades over a price series, one bar after the other",
        unit="bar",
        config="trainops.engines.backtest.config:BacktestConfig",
        job="trainops.engines.backtest.job:BacktestJob",
        positions="trainops.engines.backtest.position",
    ),
    "rl": Engine(
        label="Reinforcement learning",
        description="Agents learn by acting in a world, one step of all of them after another",
        unit="step",
        config="trainops.engines.rl.config:RlConfig",
        job="trainops.engines.rl.job:RlJob",
        positions="trainops.engines.rl.position",
        adapt="trainops.engines.rl.adapting:adapt",
    ),
    "federated": Engine(
        label="Federated",
        description="Clients train on data of their own, and a server makes one model of it",
        unit="client epoch",
        config="trainops.engines.federated.config:FederatedConfig",
        job="trainops.engines.federated.job:FederatedJob",
        positions="trainops.engines.federated.position",
        part="trainops.engines.federated.client:ClientJob",
        spends_privacy=True,
    ),
}
