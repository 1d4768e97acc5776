"""What a training loop is written with. This is the page to read before writing one.

A loop is a generator function. It keeps the objects whose state changes, loops over `run.epochs`,
`run.steps` and `run.loader`, and yields its metrics wherever it may be stopped:

    def train(run: Run, parameters: Parameters) -> Iterator[dict[str, float]]:
        model = run.keep("model", Net(parameters.width).to(run.device))
        optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters()))
        batches = run.loader("train", dataset, batch_size=32)
        for epoch in run.epochs(parameters.epochs):
            for inputs, targets in batches:
                loss = F.cross_entropy(model(inputs.to(run.device)), targets.to(run.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                yield {"train_loss": loss.detach()}
            yield {"val_loss": validate(model)}

A resume calls the function again. Its loops lead back to the saved place, and there everything
that was kept gets its saved state; whatever the code did to it on the way is undone. So a local
variable that outlives an iteration belongs into something that is kept (`run.keep("sums", {})`).
"""

import re
import warnings
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainops.datasets.directory import Directory
from trainops.kinds.loop import ranks
from trainops.kinds.loop.batches import MapBatches, PassSource, Workers
from trainops.kinds.loop.choice import Choice
from trainops.kinds.loop.combined import CombinedBatches, Mode
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.grad_norms import GradNorms
from trainops.kinds.loop.loading import make_source
from trainops.kinds.loop.means import Total, number_of
from trainops.kinds.loop.metric_states import MetricStates
from trainops.kinds.loop.orders import SamplerFunction
from trainops.kinds.loop.passes import Passes, Steps
from trainops.kinds.loop.rows import PART, Sharding, Undivided
from trainops.kinds.loop.schedules import Kind, Length, LoaderSchedule, Short
from trainops.kinds.loop.several import SeveralLoaders
from trainops.kinds.loop.streams import StreamBatches
from trainops.learning.limits import LearningLimitsConfig
from trainops.learning.modes import TrainedChanges
from trainops.runtime.errors import InputError
from trainops.runtime.ranks import ALONE, RANK_PART, Devices
from trainops.runtime.throughput import Throughput

T = TypeVar("T")
Yielded: TypeAlias = Mapping[str, Any]  # numbers, or tensors of one element
Loop: TypeAlias = Callable[["Run", Any], Generator[Yielded, None, None]]
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
MAX_COMMUTATIVE = 2  # a sum of two numbers has one order only
TRAINING = "train"  # the loader whose batches count for limits.max_duration
TAKEN = frozenset({"state", "random", "best_model", PART})  # parts of a checkpoint


class Stateful(Protocol):
    """Anything whose state can be saved and put back."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> Any: ...


class Run:
    """The run of one loop: its seed, its device, its data, and what it keeps."""

    def __init__(
        self,
        course: Course,
        *,
        seed: int,
        device: torch.device,
        inputs: Mapping[str, Path],
        devices: Devices = ALONE,
        sharding: Sharding | None = None,
        norms: GradNorms | None = None,
        taken: Iterable[str] = (),
        monitors: Mapping[str, str] | None = None,
        watch: Callable[[str, object], None] = lambda name, loss: None,
        log_every_steps: int = 1,
    ) -> None:
        self.seed, self.device, self.log_every_steps = seed, device, log_every_steps
        self.rank, self.num_ranks = devices.rank, devices.num_ranks
        self.local_rank, self.num_nodes = devices.local_rank, devices.num_nodes
        self._devices, self._sharding = devices, sharding or Undivided()
        self._taken = TAKEN.union(taken)
        self.kept: dict[str, Any] = {}
        self.details: dict[str, Any] = {}  # JSON-safe facts for the result
        self.datasets: dict[str, Any] = {}
        self.loops: dict[str, Passes] = {}  # over batches
        self.sources: dict[str, MapBatches | StreamBatches] = {}  # of loaders; some are kept, too
        self._course, self.inputs = course, inputs
        self.is_sealed = False  # the first loop has begun
        self.validates_module = False  # by batches, in eval mode
        self.trained = TrainedChanges()  # of the parameters of what is kept
        self.norms = norms or GradNorms(LearningLimitsConfig(), course, lambda: 0)
        self.watch = watch  # fails for a loss that is not finite, where none is yielded
        self.monitors = monitors or {}  # min or max of each metric that selects a best model

    def keep(self, name: str, thing: T) -> T:
        """Have the state of `thing` saved and restored as NAME.pt; return it.

        `thing` has state_dict and load_state_dict (modules, optimizers, schedulers, scalers), or
        is a dict of plain values and tensors, which is changed in place. A torchmetrics object is
        kept with its values so far; those in a module are kept as NAME_metrics.pt. Keep everything
        before the first loop.
        """
        self._require_name(name)
        if self.is_sealed:
            problem = f"{name!r} is kept within or after a loop"
            raise InputError({"recipe": f"{problem}; keep everything before the first loop"})
        is_stateful = hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")
        if not (isinstance(thing, dict) or is_stateful):
            problem = f"{name!r} is a {type(thing).__name__} without state_dict or load_state_dict"
            raise InputError({"recipe": f"{problem}; allowed: objects with both, and dicts"})
        kept = thing.module if isinstance(thing, DistributedDataParallel) else thing
        self.kept[name] = kept
        if isinstance(kept, nn.Module):
            self._keep_metrics(name, kept)
        return thing

    def _keep_metrics(self, name: str, module: nn.Module) -> None:
        """Keep the states of torchmetrics in a module: its state_dict does not have them."""
        states = MetricStates(module)
        known = [each.metrics for each in self.kept.values() if isinstance(each, MetricStates)]
        is_known = any(states.metrics.items() <= each.items() for each in known)
        if not states.metrics or is_known:
            return
        if not module.state_dict():  # a metric or several, without weights
            self.kept[name] = states
        else:
            self._require_name(f"{name}_metrics")
            self.kept[f"{name}_metrics"] = states

    def wrap(
        self,
        model: nn.Module,
        *,
        find_unused_parameters: bool | None = None,
        units: Iterable[nn.Module] | None = None,
        methods: Iterable[str] = (),
    ) -> nn.Module:
        """Return the model with gradients averaged over the ranks; the model itself for one rank.

        Uses torch's DistributedDataParallel. The state that is kept is that of `model`. By default
        parameters without a gradient are allowed for three ranks or more, because torch otherwise
        regroups the gradients after the first step, and the sums of a resume had another order.

        With `sharding: full` the model itself is divided over the ranks by torch's FSDP2, and its
        optimizer has to be made after that. `units` are the submodules whose parameters are
        gathered together for a pass, inner ones first; by default those in every nn.ModuleList.
        `methods` are those besides `forward` in which the model computes with its parameters.
        """
        if self.num_ranks == 1:
            return model
        if (sharded := self._sharding.shard(model, units, methods)) is not None:
            return sharded
        if find_unused_parameters is None:
            find_unused_parameters = self.num_ranks > MAX_COMMUTATIVE
            warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
        return DistributedDataParallel(model, find_unused_parameters=find_unused_parameters)

    def totals(self, loader: Passes, **values: float | Tensor) -> dict[str, float]:
        """Return these values of the batch that was taken, added up over all ranks.

        For evaluations: a batch that a rank repeats, because the others have more, counts nothing,
        nor does one that was counted with another number of ranks. Every rank must call it, with
        the same names. Raises InputError for loops of several loaders, and for steps.
        """
        if loader.name not in self.sources or loader.group:
            what = f"of the loader {loader.name!r}, part of {loader.group!r}"
            problem = f"got totals {what if loader.group else f'of the loop {loader.name!r}'}"
            allowed = "loops of run.loader, each for itself"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        is_new = loader.is_counted(self.rank)
        own = [float(number_of(name, value)) if is_new else 0.0 for name, value in values.items()]
        return dict(zip(values, ranks.total_of(self._devices, self.device)(own), strict=True))

    def check_norm(self, norm: float | Tensor, *, is_scaled: bool = False) -> None:
        """Compare a gradient norm with limits.exploding_norm, before the optimizer steps.

        `norm` is what torch.nn.utils.clip_grad_norm_ returns. `is_scaled`: a GradScaler is used,
        which leaves out steps whose norm is not finite. Raises ExplodingNorm, which names the step
        and the place of its batch.
        """
        self.norms.check(norm, is_scaled=is_scaled)

    @property
    def is_sharded(self) -> bool:
        """Whether `wrap` divides models over the ranks."""
        return self._sharding.is_divided

    def epochs(self, number: int) -> Passes:
        """Return a loop over the numbers of the epochs, from 0."""
        return self.steps("epoch", number)

    def steps(self, name: str, number: int) -> Passes:
        """Return a loop over range(number)."""
        if not (type(number) is int and number >= 0):
            problem = f"got {number!r} for the length of {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: an integer from 0"})
        return Passes(self._course, name, Steps(number))

    def loader(
        self,
        name: str,
        dataset: Any,
        *,
        batch_size: int | None = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        weights: Sequence[float] | Tensor | None = None,
        balance: Sequence[Hashable] | Tensor | None = None,
        num_samples: int | None = None,
        lengths: Sequence[int] | Tensor | None = None,
        sampler: SamplerFunction | Iterable[Any] | None = None,
        batch_sampler: SamplerFunction | Iterable[Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        is_random: bool = True,
        skip_undecodable: bool = False,
        shards_itself: bool = False,
    ) -> Passes:
        """Return a loop over the batches of a dataset, by torch's DataLoader. See docs/loaders.md.

        Of a map-style dataset, the order of a pass follows from the seed, the name and the number
        of the pass; the random numbers of an example also from its index. So a position costs
        nothing to return to, and the number of worker processes changes nothing.

        An iterable dataset with a state continues from it; one without is read again up to the
        position.

        Of several ranks, each takes its own batches of `batch_size` examples, and all have equally
        many: batches of the pass's beginning fill up the end, or `drop_last` leaves it out. They
        read all batches of an iterable dataset, unless it `shards_itself` by the rank.
        """
        self._require_name(name)
        choice = Choice(shuffle, weights, balance, lengths, sampler, batch_sampler, num_samples)
        workers = Workers(
            num_workers, prefetch_factor, persistent_workers, pin_memory, timeout, worker_init_fn
        )
        source = make_source(
            name, dataset, choice, workers, seed=f"{self.seed}/{name}", batch_size=batch_size,
            drop_last=drop_last, collate_fn=collate_fn, is_random=is_random,
            skip_undecodable=skip_undecodable, shards_itself=shards_itself, devices=self._devices,
            gather=ranks.gather_of(self._devices, self.device),
        )  # fmt: skip
        if isinstance(source, StreamBatches) or skip_undecodable:
            self.keep(name, source)
        self.datasets[name], self.sources[name] = dataset, source
        self.loops[name] = Passes(self._course, name, source, dataset)
        return self.loops[name]

    def loaders(
        self,
        loaders: Mapping[str, Passes],
        *,
        schedule: Kind = "round_robin",
        length: Length = "sum",
        short: Short = "cycle",
        pattern: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
        name: str = "loaders",
    ) -> Passes:
        """Return a loop over (key, batch) of several loaders, by a schedule.

        `sequential` takes one after the other, `round_robin` each in turn, `alternating` repeats a
        `pattern` of keys, and `weighted` draws one in proportion to its weight. A pass ends after
        the batches of all loaders (`sum`), when each has given all of its
        batches (`max`), when one has (`min`), or after a number of batches. A loader that has
        given all of its batches begins anew (`cycle`) or is left out (`stop`).
        """
        self._require_free(name, loaders)
        sources = {key: self.sources[each.name] for key, each in loaders.items()}
        lengths = {key: each.fixed_length() for key, each in sources.items()}
        plan = LoaderSchedule(name, schedule, length, short, lengths, tuple(pattern), weights)
        several = self.keep(name, SeveralLoaders(plan, sources, f"{self.seed}/{name}"))
        return self._grouped(name, loaders.values(), several)

    def combine(
        self,
        name: str,
        loaders: Sequence[Passes],
        mode: Mode = "min_size",
        arrange: Callable[[list[Any]], Any] = tuple,
    ) -> Passes:
        """Return a loop over tuples of a batch of each loader, or what `arrange` makes of them.

        A pass ends with the shortest loader (`min_size`, as `zip`) or the longest; shorter ones
        begin anew (`max_size_cycle`) or give None (`max_size`). Raises InputError for loaders
        whose passes have no known length.
        """
        self._require_name(name)
        self._require_free(name, dict(enumerate(loaders)))
        sources = [self.sources[each.name] for each in loaders]
        combined = CombinedBatches(name, sources, mode, arrange, self.num_ranks)
        return self._grouped(name, loaders, combined)

    def _grouped(self, name: str, loaders: Iterable[Passes], source: PassSource) -> Passes:
        """Return the loop that takes the batches of these loaders from now on."""
        for each in loaders:
            each.group = name
            self.loops.pop(each.name, None)
        self.loops[name] = Passes(self._course, name, source)
        return self.loops[name]

    def require_same_lengths(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise IncompatibleState where a loader has another length than in these saved loops."""
        for name, each in self.loops.items():
            if counts := saved.get(name):
                each.require_length(counts["passes"], counts["length"])

    def examples(self) -> dict[str, list[int]]:
        """Return the numbers of examples that the latest passes of the loaders follow from."""
        return {name: each.examples for name, each in self.loops.items() if each.examples}

    def require_same_examples(
        self, saved: Mapping[str, Mapping[str, Any]], examples: Mapping[str, list[int]]
    ) -> None:
        """Raise IncompatibleState where a loader has others than in these saved loops."""
        for name, each in self.loops.items():
            if name in saved and name in examples:
                each.require_examples(saved[name]["passes"], examples[name])

    def keep_examples(self, examples: Mapping[str, list[int]]) -> None:
        """Keep the numbers of loaders that are not entered again, for the next checkpoint."""
        for name, each in self.loops.items():
            each.examples = each.examples or examples.get(name, [])

    def _require_free(self, name: str, loaders: Mapping[Any, Passes]) -> None:
        """Raise InputError unless these are loops of `run.loader` that are used nowhere else."""
        for key, each in loaders.items():
            if not self._is_free_loader(each) or list(loaders.values()).count(each) > 1:
                problem = f"got {key!r}: a {type(each).__name__}"
                allowed = "loops of run.loader, each in one place"
                raise InputError({"recipe": f"{problem} for {name!r}; allowed: {allowed}"})

    def _is_free_loader(self, thing: object) -> bool:
        return isinstance(thing, Passes) and thing.name in self.sources and not thing.group

    def table(self, dataset_id: str) -> Path:
        """Return the Parquet file of an uploaded dataset. Raises InputError."""
        if dataset_id not in self.inputs:
            given = ", ".join(self.inputs) or "none"
            problem = f"{dataset_id} was not given; available: {given}"
            raise InputError({"parameters.dataset": problem})
        return self.inputs[dataset_id]

    def directory(self, dataset_id: str) -> Directory:
        """Return a registered directory, verified: names, sizes and a sample of the digests.

        The readers of `trainops.learning.readers` take it. Raises InputError, which names the first
        files that differ.
        """
        return Directory.open(self.table(dataset_id), self.seed)

    def objects(self) -> dict[str, Any]:
        """Return what the function made. Loaders keep no generators, only their datasets do."""
        sources = (MapBatches, StreamBatches, SeveralLoaders)
        kept = {n: each for n, each in self.kept.items() if not isinstance(each, sources)}
        return {**kept, **self.datasets}

    def close(self) -> None:
        """End the worker processes of the loaders."""
        several = [each for each in self.kept.values() if isinstance(each, SeveralLoaders)]
        for each in (*several, *self.sources.values()):
            each.close()

    def new_counts(self, total: Total) -> dict[str, float]:
        """Return the counts of examples that could not be loaded, where they have changed.

        They are those of all ranks, each of which must call it.
        """
        skipping = [each for each in self.kept.values() if isinstance(each, MapBatches)]
        new = total([each.num_unreported for each in skipping]) if skipping else []
        counts: dict[str, float] = {}
        for source, number in zip(skipping, new, strict=True):
            counts |= source.report(number)
        return counts

    @property
    def num_batches(self) -> int:
        """Batches so far of the loader `train`, or else of the loader that was entered first."""
        counts = self._course.counts
        entered = [name for name in counts if name in self.loops]
        name = TRAINING if TRAINING in self.loops else next(iter(entered), None)
        return counts[name].total if name in counts else 0

    @property
    def throughput(self) -> Throughput:
        """What the loaders have given; the examples are those of all ranks."""
        each = [source.throughput for source in self.sources.values()]
        samples = [one.num_samples for one in each if one.num_samples is not None]
        waits = [one.wait_seconds for one in each if one.wait_seconds is not None]
        is_counted = bool(each) and len(samples) == len(each)
        return Throughput(
            self.num_ranks * sum(samples) if is_counted else None, sum(waits) if waits else None
        )

    def streams(self) -> dict[str, StreamBatches]:
        return {n: each for n, each in self.kept.items() if isinstance(each, StreamBatches)}

    @property
    def modules(self) -> dict[str, nn.Module]:
        return {name: each for name, each in self.kept.items() if isinstance(each, nn.Module)}

    def _require_name(self, name: str) -> None:
        is_taken = name in self._taken | self.kept.keys() | self.datasets.keys()
        if not NAME.fullmatch(name) or is_taken or RANK_PART.fullmatch(name):
            problem = f"got the name {name!r:.60}"
            taken = [*sorted(self._taken), "rank1, rank2, ..."]
            allowed = f"{NAME.pattern}, each once, except {', '.join(taken)}"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
