"""A training loop written as a generator function: one step is one `yield`."""

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from greenlet import greenlet
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from trainops.kinds.loop import other_ranks, ranks
from trainops.kinds.loop.bests import Bests, copied
from trainops.kinds.loop.config import LoopConfig
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.grad_norms import GradNorms
from trainops.kinds.loop.lazy_modules import state_of_module
from trainops.kinds.loop.means import Means, number_of
from trainops.kinds.loop.rank_changes import (
    planned_ranks,
    require_fixed_nodes,
    require_same_ranks,
)
from trainops.kinds.loop.rows import PART, SHARDS, Sharding, Undivided
from trainops.kinds.loop.run import Run, Yielded
from trainops.lazy import load
from trainops.learning.labels import require_labels
from trainops.learning.modes import FORGOTTEN, ModeChanges, TrainedChanges, require_places
from trainops.learning.shapes import require_same_optimizers, require_same_shape
from trainops.runtime.devices import choose_device
from trainops.runtime.durations import NAMES
from trainops.runtime.errors import IncompatibleState, InputError, NonFiniteLoss
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.ranks import ALONE, Devices
from trainops.runtime.throughput import Throughput

log = logging.getLogger(__name__)
MAX_YIELDS = 10_000  # without a loop of the run, which is where a loop can be stopped
PLAIN = (
    "epoch", "global_step", "metrics", "metric", "best_metric", "best_step", "course", "means",
)  # fmt: skip


class LoopJob:
    """A generator function in training.

    It runs in a greenlet: where one of its loops is about to take the next item, and something was
    yielded since the last time, control returns to the runtime. These are the safe points; the
    code after a `yield` has then run to the end of the iteration.
    """

    unit: ClassVar[str] = "step"

    def __init__(
        self, config: LoopConfig, inputs: Mapping[str, Path], *, devices: Devices = ALONE
    ) -> None:
        self.config, self.devices = config, devices
        self._changes: dict[str, str] = {}  # since the state that was loaded
        self.step, self.epoch = 0, 0
        self.is_finished = False
        self.metrics: dict[str, float] = {}  # newest points by name
        self._bests = Bests(config)
        device = choose_device(config.device)
        # With gloo, on CPUs, sums do not depend on the nodes.
        self._num_nodes = devices.num_nodes if device.type == "cuda" else 1
        self._total = ranks.total_of(devices, device)
        self._means = Means(config.log_every_steps, self._total)
        self._course = Course(self._at_head)
        self._modes = ModeChanges({})  # of what is kept, since the first loop
        self._sharding = _sharding_of(config, devices, device)
        self._whole: dict[str, dict[str, Any]] | None = None  # divided models, after the end
        self._parts: Mapping[int, StateDict] = {}  # of the other ranks, of the state to be loaded
        self._is_check = False  # the state is loaded by one process, for all ranks of the config
        self._run = Run(
            self._course, seed=config.seed, device=device, inputs=inputs, devices=devices,
            sharding=self._sharding,
            norms=GradNorms(config.limits, self._course, lambda: self.step),
            taken=self._bests.parts.values(),
            monitors={config.monitor: config.mode, **config.monitors}, watch=self._watch,
            log_every_steps=config.log_every_steps,
        )  # fmt: skip
        self._points: dict[str, float] = {}
        self._num_yields = 0  # since the last safe point
        self._max_repeated = 0  # yields on the way back to the place of a state
        self._has_begun, self._is_arriving, self._has_gradients = False, False, True
        recipe = config.find_recipe()
        self._function = recipe.builder()
        if not inspect.isgeneratorfunction(self._function):
            raise TypeError(f"{recipe.build} is no generator function: it contains no yield")
        self._parameters = recipe.parse_parameters(config.parameters)
        limit = config.limits.max_progress
        self._limit, self._unit = (limit.number, limit.unit) if limit else (0, "ba")
        self._loop = greenlet(self._drive)
        self._go()
        require_fixed_nodes(self._run, config)

    @property
    def total_steps(self) -> int:
        """An estimate by the outermost loop or max_duration, until the end is reached."""
        if self.is_finished or self._is_at_limit:
            return self.step
        share = max(self._course.share(), self._counted / self._limit if self._limit else 0.0)
        return max(self.step + 1, round(self.step / share) if share else 0)

    @property
    def place(self) -> str:
        return self._course.place() or ("finished" if self.is_finished else "begins")

    def milestones(self) -> int:
        return self.epoch // self.config.checkpoint.every_epochs

    def advance(self) -> Metrics:
        self._points, self._whole = {}, None
        self._go()
        if self.is_finished:
            with self._locating_losses():
                self._record(self._means.rest(self.step))
            self._record(self._run.new_counts(self._total))
        if self.is_finished or self._is_at_limit:
            self._whole = self._sharding.gathered(self._sharding.models(self._run.kept))
        return self._points

    @property
    def throughput(self) -> Throughput:
        return self._run.throughput

    @property
    def weights(self) -> Mapping[str, str]:
        return {name: name for name in self._run.modules}

    def state_dict(self) -> StateDict:
        with self._locating_losses():
            self._means.look(self.step)
        plain = {
            "recipe": self.config.recipe,
            "place": self.place,
            "epoch": self.epoch,
            "global_step": self.step,
            "metrics": dict(self.metrics),
            **self._bests.to_state(),
            "course": self._course.to_state(),
            "means": self._means.state_dict(),
            "is_finished": self.is_finished,
            **{name: e.state_dict() for name, e in self._changing.items() if e.has_changed},
            **({"examples": examples} if (examples := self._run.examples()) else {}),
            **({"num_ranks": self.devices.num_ranks} if self.devices.num_ranks > 1 else {}),
            **({"num_nodes": self._num_nodes} if self._num_nodes > 1 else {}),
        }
        divided = self._sharding.divided(self._run.kept)
        own = {name: thing for name, thing in self._run.kept.items() if name not in divided}
        kept = {name: ranks.state_of(thing, name) for name, thing in own.items()}
        parts = {PART: {SHARDS: divided}} if divided else {}
        return {"state": plain, **kept, **parts, **(self._whole or {}), **self._bests.models()}

    @property
    def is_divided(self) -> bool:
        return bool(self._sharding.models(self._run.kept))

    def receive_parts(self, of_ranks: Mapping[int, StateDict], *, is_check: bool = False) -> None:
        self._parts, self._is_check = of_ranks, is_check

    def load_state_dict(self, state: StateDict) -> None:
        plain = state.get("state")
        if not isinstance(plain, Mapping) or (missing := [n for n in PLAIN if n not in plain]):
            lacking = "state" if not isinstance(plain, Mapping) else ", ".join(missing)
            raise IncompatibleState(f"the state lacks {lacking}")
        if self.step or not self._run.is_sealed:
            raise IncompatibleState("a state can be loaded only into a new job")
        for name in self._changing.keys() & plain.keys():
            require_places(name, plain[name])
        was_divided = PART in state
        bests = Bests(self.config).from_state(state)
        before, now = int(plain.get("num_ranks", 1)), self.devices.num_ranks
        planned = planned_ranks(self.config, before) if self._is_check else now
        is_as_many = before == planned
        of_rank = self._own_parts() if is_as_many else self._merged(state, before, planned)
        state, self._whole = self._opened(state) | of_rank, self._whole_in(state)
        self._require_kept(state)
        # The optimizer has stepped, in an earlier process: torch need not be surprised.
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        means = Means(self.config.log_every_steps, self._total)
        means.load_state_dict(plain["means"])
        with self._locating_losses("before this checkpoint was saved; resume from an earlier one"):
            means.look(int(plain["global_step"]))
        require_same_ranks(self._run, before, planned)
        course = ranks.rescaled(plain["course"], self._run.datasets, before=before, now=now)
        self._changes = other_ranks.change(
            before, now, was_divided=was_divided, is_divided=self.is_divided
        )
        nodes_before = int(plain.get("num_nodes", 1))
        self._changes |= other_ranks.change_of_nodes(nodes_before, self._num_nodes)
        self._course.resume(course)
        examples = _examples_of(plain) if before == now else {}
        if not plain.get("is_finished"):
            self._is_arriving = self._course.is_resuming
            self._max_repeated = int(plain["global_step"])
            self._put_back(state)  # the code on the way may look at it
            if self._is_arriving:
                self._go()
            if before == now:
                self._run.require_same_lengths(course["loops"])
                self._run.require_same_examples(course["loops"], examples)
        self._run.keep_examples(examples)
        self._put_back(state)
        if self._has_forgotten_modes(plain):
            self._changes["modes"] = FORGOTTEN
        self._parts = {}
        self._means, self.is_finished = means, bool(plain.get("is_finished"))
        self.step, self.epoch = int(plain["global_step"]), int(plain["epoch"])
        self.metrics, self._bests = dict(plain["metrics"]), bests

    def _has_forgotten_modes(self, plain: Mapping[str, Any]) -> bool:
        """Whether the state is of a version that did not keep modes, and the loop needs them.

        Those versions did not save the numbers of examples either.
        """
        is_older = "examples" not in plain and bool(self._run.examples())
        return is_older and self._run.validates_module and self._modes.begin_in_eval

    def replicated(self) -> Mapping[str, object]:
        return {
            "the place of the loop": self._course.to_state(),
            **ranks.replicated(self._run.kept),
            **self._sharding.common(self._run.kept),
        }

    def rank_state_dict(self) -> StateDict:
        with self._locating_losses():
            self._means.look(self.step)
        return {
            "means": self._means.state_dict(),
            "kept": ranks.rank_state_of(self._run.kept),
            SHARDS: self._sharding.divided(self._run.kept),
        }

    def load_rank_state_dict(self, state: StateDict) -> None:
        ranks.load_rank_state(self._run.kept, copied(state.get("kept")))
        self._means.load_state_dict(state.get("means", {}))

    def objects(self) -> Mapping[str, Any]:
        return {"loop": self._function, **self._run.objects()}

    @property
    def notes(self) -> Mapping[str, str]:
        """What a resume did to come to the place in an iterable dataset."""
        return {name: each.note for name, each in self._run.streams().items()}

    @property
    def uncertain(self) -> Mapping[str, str]:
        return {name: why for name, each in self._run.streams().items() if (why := each.uncertain)}

    @property
    def inexact(self) -> Mapping[str, str]:
        problems = {name: each.problem for name, each in self._run.streams().items()}
        return {**self._changes, **{name: each for name, each in problems.items() if each}}

    def result(self) -> Mapping[str, Any]:
        return {
            "recipe": self.config.recipe,
            "final": dict(self.metrics),
            **self._bests.result(),
            "epochs": self.epoch,
            "steps": self.step,
            **({"stopped_by": self._stopped_by} if self._is_stopped else {}),
            "parameters": sum(
                each.numel()
                for model in self._run.modules.values()
                for each in model.parameters()
                if not isinstance(each, UninitializedParameter)
            ),
            "artifacts": [f"{name}.pt" for name in self.state_dict() if name != "state"],
            **({"details": self._run.details} if self._run.details else {}),
        }

    def close(self) -> None:
        """End the function where it stands, and the worker processes of its loaders.

        What a suspended greenlet refers to is never collected, so neither are its loaders.
        """
        self._runtime = self._loop.parent = greenlet.getcurrent()
        try:
            with torch.set_grad_enabled(self._has_gradients):
                self._loop.throw()
        except Exception:
            log.warning("%s raised while it was closed", self.config.recipe, exc_info=True)
        self._run.close()

    @property
    def _counted(self) -> int:
        """Epochs or batches so far, by the unit of max_duration."""
        if self._unit == "ep":
            return self.epoch
        return self._run.num_batches

    @property
    def _is_at_limit(self) -> bool:
        return self._limit > 0 and self._counted >= self._limit

    @property
    def _is_stopped(self) -> bool:
        return self._is_at_limit and not self.is_finished

    @property
    def _stopped_by(self) -> str:
        return f"max_duration at {self._counted} {NAMES[self._unit]}"

    def _go(self) -> None:
        """Let the function run to its next safe point, or to its end."""
        if self.is_finished:
            return
        self._num_yields = 0
        self._runtime = greenlet.getcurrent()
        self._loop.parent = self._runtime  # where exceptions of the function go
        with torch.set_grad_enabled(self._has_gradients):
            try:
                self._loop.switch()
            except (IndexError, RuntimeError) as error:
                require_labels(error, self._course.failed_item())
                raise
            self._has_gradients = torch.is_grad_enabled()  # it may stand within no_grad()
        self._sharding.reshard()
        epoch, before = self._course.counts.get("epoch"), self.epoch
        self.epoch = 0 if epoch is None else self._num_epochs(epoch.taken)
        if self.epoch == 1 and not before:
            self._warn_if_unmeasured()

    def _num_epochs(self, taken: int) -> int:
        is_within = "epoch" in self._course.open[:-1]
        return taken - is_within

    def _drive(self) -> None:
        for metrics in self._function(self._run, self._parameters):
            self._yielded(metrics)
        if self._is_arriving:
            raise IncompatibleState("the loop ends before the place of the checkpoint")
        if not self.step and not self._course.is_resuming:
            raise InputError({"recipe": f"{self.config.recipe} yielded nothing"})
        self.is_finished = not self._course.is_resuming
        self._run.norms.warn_if_unused()
        self._warn_if_unmeasured()

    def _warn_if_unmeasured(self) -> None:
        if self.devices.rank == 0:
            self._bests.warn_if_unmeasured(self.metrics)

    def _yielded(self, metrics: Yielded) -> None:
        self._num_yields += 1
        if self._course.is_resuming:  # between the loops on the way back: counted then
            if self._num_yields > self._max_repeated:
                raise IncompatibleState("the loop yields more often on its way than it had before")
            return
        if not self._has_begun or self._num_yields > MAX_YIELDS:
            problem = f"{self.config.recipe} yields outside of the run's loops"
            allowed = "yields within loops over run.epochs, run.steps and run.loader"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        self.step += 1
        with self._locating_losses():
            self._record(self._means.add(self.step, metrics))
        # Ranks exchange numbers; one alone has the count with the step at which it changes.
        if self.devices.num_ranks == 1 or self.step % self.config.log_every_steps == 0:
            self._record(self._run.new_counts(self._total))
        self._judge(metrics)

    def _watch(self, name: str, loss: object) -> None:
        if not self._course.is_resuming:
            with self._locating_losses():
                self._means.watch(self.step + 1, name, loss)

    @contextmanager
    def _locating_losses(self, where: str = "") -> Iterator[None]:
        """Name the place of a loss that is not finite; by default that of the batch at work."""
        try:
            yield
        except NonFiniteLoss as error:
            if not where:
                where = self._course.item_at_work()
                if error.num_steps > 1:
                    place = f"up to {where}; " if where else ""
                    where = f"{place}log_every_steps: 1 finds the step"
            raise NonFiniteLoss(
                error.step, error.value, error.what, where, error.num_steps
            ) from None

    def _record(self, points: Mapping[str, float]) -> None:
        self._points |= points
        self.metrics |= points

    def _judge(self, metrics: Yielded) -> None:
        """Keep the models where they are the best by a monitored metric."""
        names = [name for name in self._bests.parts if name in metrics]
        values = [float(number_of(name, metrics[name])) for name in names]
        totals = self._total(values) if values else []
        means = (total / self.devices.num_ranks for total in totals)
        if best := self._bests.judge(dict(zip(names, means, strict=True)), self.step):
            whole = self._sharding.gathered(self._sharding.models(self._run.kept))
            if self.devices.rank == 0:
                models = self._run.modules
                own = {n: state_of_module(e) for n, e in models.items() if n not in (whole or {})}
                self._bests.keep(best, copied(own) | (whole or {}))

    def _own_parts(self) -> StateDict:
        """Return what this rank has of its own, where rank 0 has it, too; not its buffers.

        A dataset that shards itself by the rank cannot load the state of another one.
        """
        kept = self._parts.get(self.devices.rank, {}).get("kept", {})
        modules = self._run.modules
        return {name: each for name, each in kept.items() if name not in modules}

    def _merged(self, state: StateDict, before: int, now: int) -> StateDict:
        """Return states for this rank of what can be merged: those of each rank of before once.

        Raises IncompatibleState for metrics that cannot be merged.
        """
        found = {}
        for name, thing in self._run.kept.items():
            if isinstance(thing, ranks.Merging) and name in state:
                parts = [self._parts.get(rank, {}).get("kept", {}) for rank in range(1, before)]
                of_ranks = [state[name], *(each[name] for each in parts if name in each)]
                own = of_ranks[self.devices.rank :: now]
                found[name] = state[name] | thing.merged(own)
        return found

    def _whole_in(self, state: StateDict) -> dict[str, dict[str, Any]] | None:
        """Return the whole models of a divided state, which it has at the end."""
        if PART not in state:
            return None
        return {name: state[name] for name in state[PART][SHARDS] if name in state} or None

    def _opened(self, state: StateDict) -> StateDict:
        """Return the state with what the objects of this rank can load."""
        if PART not in state:
            return self._sharding.laid_out(self._run.kept, state)
        of_ranks = {0: state[PART], **self._parts}
        parts = {rank: each.get(SHARDS, {}) for rank, each in of_ranks.items()}
        num_ranks = int(state["state"].get("num_ranks", 1))
        opened = self._sharding.opened(self._run.kept, parts, num_ranks)
        self._parts = {}
        return {name: each for name, each in state.items() if name != PART} | opened

    def _at_head(self) -> None:
        """Return to the runtime if something was yielded, and before the first loop.

        Also where the last epoch of max_duration has ended: it may end without a yield.
        """
        if not self._run.is_sealed:
            self._sharding.require_sharded(self._run.kept)
            self._modes = ModeChanges(self._run.modules)
            self._run.trained.begin(self._run.modules)
        self._run.is_sealed = True
        if not self._is_arriving:
            for each in self._changing.values():
                each.look()
        is_due = self._num_yields or not self._has_begun or self._is_arriving
        if is_due or (self._unit == "ep" and self._course.open == ["epoch"] and self._is_last()):
            self._has_begun, self._is_arriving = True, False
            self._runtime.switch()

    @property
    def _changing(self) -> dict[str, ModeChanges | TrainedChanges]:
        """What is part of a state once it has changed at the beginning of an iteration."""
        return {"modes": self._modes, "trained": self._run.trained}

    def _is_last(self) -> bool:
        return self._course.counts["epoch"].taken >= self._limit > 0

    def _require_kept(self, state: StateDict) -> None:
        """Raise IncompatibleState unless what was kept then is what is kept now."""
        own, given = self._run.kept, state.keys() - {"state", *self._bests.parts.values()}
        if own.keys() != given:
            kept = ", ".join(own) or "nothing"
            raise IncompatibleState(f"the state has {', '.join(sorted(given))}; kept is {kept}")
        for name, thing in own.items():
            if isinstance(thing, nn.Module):
                require_same_shape(state_of_module(thing, state[name]), state[name], name)
            elif isinstance(thing, Optimizer):
                require_same_optimizers([thing], [state[name]])
            elif isinstance(thing, dict) and not isinstance(state[name], dict):
                raise IncompatibleState(f"{name} is no dict in the state")

    def _put_back(self, state: StateDict) -> None:
        for name, each in self._changing.items():
            if name in state["state"]:
                each.load_state_dict(state["state"][name])
        kept = self._run.kept
        for name in (*self._run.modules, *(n for n in kept if n not in self._run.modules)):
            ranks.put_back(kept[name], copied(state[name]))


def _examples_of(plain: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the numbers of examples of a state: none of an older one. Raises IncompatibleState."""
    try:
        return {str(name): [int(n) for n in each] for name, each in plain["examples"].items()}
    except KeyError:
        return {}
    except (TypeError, ValueError, AttributeError) as error:
        raise IncompatibleState(f"the numbers of examples cannot be read: {error!r}") from error


def _sharding_of(config: LoopConfig, devices: Devices, device: torch.device) -> Sharding:
    if config.sharding == "none" or devices.num_ranks == 1:
        return Undivided()
    shards: Sharding = load("trainops.kinds.loop.sharding:Shards")(devices, device)
    return shards
