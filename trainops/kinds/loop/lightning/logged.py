"""What a LightningModule logs: values of steps, and means of epochs that are kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from trainops.kinds.loop.means import number_of
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.ranks import Merging
from trainops.kinds.loop.replicas import Reductions
from trainops.runtime.errors import InputError

OF_LOADER = "/dataloader_idx_"  # with a number at the end of a name, as Lightning has it


class LoggedValues(Merging):
    """The sums of the epoch, the places of its torchmetrics, and the latest value of each name.

    The sums are those of this rank until the epoch ends; then they are added up over all ranks.
    """

    def __init__(self, num_ranks: int) -> None:
        self.values: dict[str, Any] = {"sums": {}, "metrics": {}, "latest": {}}
        self._num_ranks = num_ranks

    def state_dict(self) -> dict[str, Any]:
        # Workers of version 0.1.0 drop the sums of other ranks without `num_ranks`: to be written
        # as long as they may resume operations of this version.
        return self.values | {"num_ranks": self._num_ranks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values.clear()
        self.values.update({name: each for name, each in state.items() if name != "num_ranks"})

    def merged(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the sums of several ranks, and the places of all torchmetrics that one logged."""
        sums: dict[str, dict[str, Any]] = {}
        metrics: dict[str, dict[str, str]] = {}
        for state in states:
            for stage, places in state["metrics"].items():
                metrics.setdefault(stage, {}).update(places)
            for stage, of_stage in state["sums"].items():
                added = sums.setdefault(stage, {})
                for name, (total, count) in of_stage.items():
                    before = added.get(name, (0.0, 0))
                    added[name] = (before[0] + total, before[1] + count)
        return {"sums": sums, "metrics": metrics}


class Logged:
    """Receives `self.log`. What is kept is in `kept`."""

    def __init__(self, module: nn.Module, kept: LoggedValues, reductions: Reductions) -> None:
        self._module, self._kept, self._reductions = module, kept.values, reductions
        self._points: dict[str, float | Tensor] = {}  # since the last yield
        self.stage = "train"
        self._is_step = False  # a hook of a training batch is running
        self._batch_size: Callable[[], int] = int  # of the batch, if a batch's hook is running
        self._is_counted = True  # the batch does not repeat another one of the pass
        self._suffix = ""  # of names, where the batch is of one of several loaders

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        *_display: Any,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        sync_dist: bool = False,
        rank_zero_only: bool = False,
        batch_size: int | None = None,
        add_dataloader_idx: bool = True,
        **_others: Any,
    ) -> None:
        """Take the place of LightningModule.log; `prog_bar` is for `progress_bar`.

        Means of epochs are over all ranks, whatever `sync_dist` is.
        """
        suffix = self._suffix if add_dataloader_idx else ""
        if reduce_fx not in ("mean", torch.mean):
            problem = f"self.log({name!r}) has the reduce_fx {reduce_fx!r}"
            allowed = "mean, and MaxMetric, MinMetric and SumMetric of torchmetrics as the value"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        if isinstance(value, Metric):
            self._kept["metrics"].setdefault(self.stage, {})[name + suffix] = self._place(
                name, value
            )
            self._show_in_bar(name + suffix, is_shown=prog_bar)
            return
        number = number_of(name, value, "self.log was given")
        on_step = self._is_step if on_step is None else on_step
        on_epoch = not self._is_step if on_epoch is None else on_epoch
        is_both = on_step and on_epoch
        self._require_common(name, on_step=on_step, rank_zero_only=rank_zero_only)
        if on_epoch and not (rank_zero_only and self._reductions.rank):
            count = batch_size or self._batch_size() or 1
            of_epoch = f"{name}{'_epoch' if is_both else ''}{suffix}"
            self._add(of_epoch, number, count)
            self._show_in_bar(of_epoch, is_shown=prog_bar)
        if on_step:
            number = self._reductions.mean(number) if sync_dist else number
            of_step = f"{name}{'_step' if is_both else ''}{suffix}"
            self._point(of_step, number)
            self._show_in_bar(of_step, is_shown=prog_bar)
        if is_both:
            self._kept["latest"][name + suffix] = number

    @contextmanager
    def during(
        self,
        batch_size: Callable[[], int],
        *,
        is_step: bool,
        is_counted: bool = True,
        loader_index: int | None = None,
    ) -> Iterator[None]:
        """Hooks of a batch run within the block; one that is not counted repeats another.

        `loader_index`: of several loaders, the one that the batch is of.
        """
        self._batch_size, self._is_step, self._is_counted = batch_size, is_step, is_counted
        self._suffix = "" if loader_index is None else f"{OF_LOADER}{loader_index}"
        try:
            yield
        finally:
            self._batch_size, self._is_step, self._is_counted = int, False, True
            self._suffix = ""

    def take(self) -> dict[str, float | Tensor]:
        """Return the values of steps since the last call."""
        points, self._points = self._points, {}
        return points

    def add_points(self, values: Mapping[str, float]) -> None:
        """Add values to those of the step."""
        self._points |= values

    def show(self, loaders: Iterable[Passes]) -> None:
        """Let `latest` have the means and metrics of the stage's epoch, which continues."""
        self._note(self._means() | self._computed(self._places(), loaders))

    def end_epoch(self, loaders: Iterable[Passes]) -> dict[str, float | Tensor]:
        """Return the means and metrics of the stage's epoch, which begins anew.

        They are the same in all ranks; torchmetrics add up their states over the ranks themselves.
        """
        ended = self._kept.pop("ended", {"values": {}, "places": []})
        places = self._places()
        found = {**ended["values"], **self._means(), **self._computed(places, loaders)}
        for place in (*ended["places"], *places.values()):
            self._metric(place).reset()
        self._end_stage()
        self._note(found)
        return found

    def end_loader(self, loaders: Iterable[Passes]) -> None:
        """Compute means and metrics of one of several loaders of the stage.

        As in Lightning, a metric that is logged with several loaders is reset after the last one.
        Raises InputError for a name that an earlier loader had.
        """
        ended = self._kept.setdefault("ended", {"values": {}, "places": []})
        places = self._places()
        found = self._means() | self._computed(places, loaders)
        ended["places"] += places.values()
        if shared := sorted(found.keys() & ended["values"].keys()):
            problem = f"self.log({shared[0]!r}, add_dataloader_idx=False) is used with two loaders"
            raise InputError({"recipe": f"{problem}; allowed: a name for each loader"})
        ended["values"] |= found
        self._end_stage()
        self._note(found)

    @property
    def latest(self) -> Mapping[str, Tensor]:
        return {name: torch.as_tensor(each) for name, each in self._kept["latest"].items()}

    @property
    def progress_bar(self) -> dict[str, float]:
        """The latest value of each name that was logged with prog_bar."""
        latest = self._kept["latest"]
        names = self._kept.get("progress_bar", ())
        return {name: float(latest[name]) for name in names if name in latest}

    def _show_in_bar(self, name: str, *, is_shown: bool) -> None:
        if is_shown and name not in self._kept.get("progress_bar", ()):
            self._kept.setdefault("progress_bar", []).append(name)

    def _places(self) -> dict[str, str]:
        """Return where the torchmetrics of the stage are that a rank has logged, by name."""
        return dict(self._reductions.union(self._kept["metrics"].get(self.stage, {}).items()))

    def _computed(
        self, places: Mapping[str, str], loaders: Iterable[Passes]
    ) -> dict[str, float | Tensor]:
        """Return the values of torchmetrics, which add up their states over the ranks."""
        metrics = {name: self._metric(place) for name, place in places.items()}
        what = "epoch" if self.stage == "train" else self.stage
        self._reductions.require_lists(metrics, what, loaders)
        return {name: number_of(name, each.compute()) for name, each in metrics.items()}

    def _end_stage(self) -> None:
        for part in ("sums", "metrics"):
            self._kept[part].pop(self.stage, None)

    def _note(self, found: Mapping[str, float | Tensor]) -> None:
        self._kept["latest"] |= found
        self._kept["latest"] |= {_without_epoch(name): each for name, each in found.items()}

    def _means(self) -> dict[str, float | Tensor]:
        sums = self._sums()
        names = self._reductions.union(sums)
        own = [sums.get(name, (0.0, 0)) for name in names]
        added = self._reductions.sums([number for each in own for number in each])
        pairs = zip(names, added[::2], added[1::2], strict=True)
        # as floats: torch may multiply by the reciprocal of a divisor, on a GPU always
        return {name: float(total) / float(count) for name, total, count in pairs}

    def _require_common(self, name: str, *, on_step: bool, rank_zero_only: bool) -> None:
        if on_step and rank_zero_only and self._reductions.num_ranks > 1:
            problem = f"self.log({name!r}) has on_step and rank_zero_only with several processes"
            raise InputError({"recipe": f"{problem}; allowed: one of them"})

    def _sums(self) -> dict[str, Any]:
        sums: dict[str, Any] = self._kept["sums"].setdefault(self.stage, {})
        return sums

    def _point(self, name: str, number: float | Tensor) -> None:
        self._points[name] = number
        self._kept["latest"][name] = number

    def _add(self, name: str, number: float | Tensor, count: int) -> None:
        if not self._is_counted:
            number, count = 0.0, 0
        total, before = self._sums().get(name, (0.0, 0))
        self._sums()[name] = (total + number * count, before + count)

    def _metric(self, place: str) -> Metric:
        metric = self._module.get_submodule(place)
        assert isinstance(metric, Metric)  # noqa: S101 - it was one when it was logged
        return metric

    def _place(self, name: str, metric: Metric) -> str:
        for place, each in self._module.named_modules():
            if each is metric:
                return str(place)
        raise InputError({"recipe": f"the metric logged as {name!r} is no attribute of the module"})


def _without_epoch(name: str) -> str:
    base, separator, index = name.partition(OF_LOADER)
    return base.removesuffix("_epoch") + separator + index
