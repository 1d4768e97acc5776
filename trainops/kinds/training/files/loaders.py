"""Where the data loaders of a training file stood."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainops.files.fields import Fields, is_dict, is_integer, is_list, shown
from trainops.kinds.training.files.streams import NumpyState, read_numpy_state


@dataclass(frozen=True, slots=True)
class LoaderState:
    """One loader; `batch_idx` is the next batch."""

    number: int
    name: str
    batch_idx: int
    exhausted: bool = False
    sampler_state: Mapping[str, Any] | None = None
    dataset_state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class IteratorState:
    """The loaders of one epoch and the schedule over them; `cycles` counts how often each began
    anew."""

    schedule_position: int
    loaders: tuple[LoaderState, ...]
    total_batches: int
    cycles: tuple[int, ...]
    prefetched_batches: int = 0


@dataclass(frozen=True, slots=True)
class LoaderManagerState:
    """`seed` and `choice_rng` are the schedule's own."""

    seed: int | None = None
    choice_rng: NumpyState | None = None
    train: IteratorState | None = None
    validation: IteratorState | None = None


def read_loader_manager(fields: Fields) -> LoaderManagerState:
    seed, choice_rng = None, read_numpy_state(fields, "choice_rng")
    if is_list(fields.plain("choice_rng_state", default=None)):  # the tuple itself
        choice_rng = choice_rng or read_numpy_state(fields, "choice_rng_state")
    elif fields.has("choice_rng_state"):
        seed = fields.within("choice_rng_state").integer("seed", at_least=None, default=None)
    return LoaderManagerState(
        seed=seed,
        choice_rng=choice_rng,
        train=_read_iterator(fields, "train_iterator_state"),
        validation=_read_iterator(fields, "val_iterator_state"),
    )


def write_loader_manager(state: LoaderManagerState) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "choice_rng_state": {"seed": state.seed, "state": None},
        "choice_rng": state.choice_rng,
    }
    if state.train:
        tree["train_iterator_state"] = _iterator_tree(state.train)
    if state.validation:
        tree["val_iterator_state"] = _iterator_tree(state.validation)
    return tree


def _read_iterator(fields: Fields, name: str) -> IteratorState | None:
    if not fields.has(name):
        return None
    found = fields.within(name)
    loaders = tuple(
        LoaderState(
            number=each.integer("id", default=number),
            name=each.text("name", default=f"loader_{number}"),
            batch_idx=each.integer("batch_idx"),
            exhausted=each.flag("exhausted"),
            sampler_state=each.mapping("sampler_state", default=None),
            dataset_state=each.mapping("dataset_state", default=None),
        )
        for number, each in enumerate(found.each("loader_states"))
    )
    state = IteratorState(
        schedule_position=found.integer("schedule_position"),
        loaders=loaders,
        total_batches=found.integer("total_batches"),
        cycles=_read_cycles(found, len(loaders)),
        prefetched_batches=found.integer("prefetched_batches", default=0),
    )
    seen = sum(loader.batch_idx for loader in loaders)
    if seen > max(state.total_batches, state.prefetched_batches):
        found.wrong("total_batches", f"is {state.total_batches}, but the loaders gave {seen}")
    return state


def _read_cycles(fields: Fields, num_loaders: int) -> tuple[int, ...]:
    """Return a count for each loader; a list in real files, a dict by the format's description."""
    cycles = fields.plain("loader_cycles", default=[0] * num_loaders)
    if is_dict(cycles):
        cycles = [cycles.get(number, 0) for number in range(num_loaders)]
    if (
        isinstance(cycles, list | tuple)
        and len(cycles) == num_loaders
        and all(is_integer(each) and each >= 0 for each in cycles)
    ):
        return tuple(map(int, cycles))
    fields.wrong("loader_cycles", f"is {shown(cycles)}; must count for each of {num_loaders}")
    return (0,) * num_loaders


def _iterator_tree(state: IteratorState) -> dict[str, Any]:
    return {
        "schedule_position": state.schedule_position,
        "loader_states": [
            {
                "id": each.number,
                "name": each.name,
                "batch_idx": each.batch_idx,
                "exhausted": each.exhausted,
                "sampler_state": each.sampler_state,
                "dataset_state": each.dataset_state,
            }
            for each in state.loaders
        ],
        "total_batches": state.total_batches,
        "loader_cycles": list(state.cycles),
        "prefetched_batches": state.prefetched_batches,
    }
