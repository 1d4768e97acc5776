"""The formats of other tools that are spoken here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from trainops.formats import federated, federated_parsing, rl, rl_parsing, training
from trainops.formats.errors import UnknownFormat
from trainops.formats.federated import FederatedFile
from trainops.formats.outline import Outline, TensorOutline, entries_of
from trainops.formats.rl import RlFile
from trainops.formats.training import TrainingFile

ForeignFile: TypeAlias = TrainingFile | FederatedFile | RlFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How the files of one tool are read; `marks` are the keys, each set of which gives it away."""

    name: str
    marks: tuple[frozenset[str], ...]
    check_version: Callable[[Mapping[str, Any]], str]
    parse: Callable[[Mapping[str, Any]], ForeignFile]
    disagreements: Callable[[Any], Mapping[str, str]]
    warnings: Callable[[Any], Sequence[str]] = lambda file: ()
    compared: str = "positions, optimizers, schedules and shapes agree"
    has_enums: bool = False


FORMATS = (
    Format(
        name="training",
        marks=(frozenset({"model_state_dict"}),),
        check_version=training.check_version,
        parse=training.parse,
        disagreements=training.disagreements,
        warnings=training.warnings,
        compared=training.COMPARED,
        has_enums=True,
    ),
    Format(
        name="rl",
        marks=(frozenset({"population_state"}), frozenset({"version", "episode"})),
        check_version=rl.check_version,
        parse=rl_parsing.parse,
        disagreements=rl.disagreements,
    ),
    Format(
        name="federated",
        marks=(
            frozenset({"server", "clients"}),
            frozenset({"parameters", "round"}),  # 1.x
            frozenset({"model", "dice"}),  # older still
        ),
        check_version=federated.check_version,
        parse=federated_parsing.parse,
        disagreements=federated.disagreements,
    ),
)


WEIGHTS = Format(
    name="weights",
    marks=(),
    check_version=training.check_weights,
    parse=training.parse_weights,
    disagreements=training.disagreements,
    compared="nothing to compare: only a job knows the shapes of its model",
)


def recognise(outline: Outline) -> Format:
    """Return the format of a file. Raises UnknownFormat, which names the keys found."""
    entries = entries_of(outline.root)
    if entries is None:
        raise UnknownFormat(f"the file holds a {type(outline.root).__name__} and no dict of parts")
    for known in FORMATS:
        if any(marks <= entries.keys() for marks in known.marks):
            return known
    if entries and all(isinstance(each, TensorOutline) for each in entries.values()):
        return WEIGHTS
    keys = ", ".join(map(str, list(entries)[:10])) or "none"
    raise UnknownFormat(
        f"the keys at the top are {keys}; a training file has model_state_dict, a federated one "
        "server and clients, one of reinforcement learning population_state, a model nothing but "
        "tensors"
    )


def tree_of(file: ForeignFile) -> dict[str, Any]:
    """Return what is saved of a file."""
    match file:
        case TrainingFile():
            return training.to_tree(file)
        case FederatedFile():
            return federated.to_tree(file)
        case RlFile():
            return rl.to_tree(file)
    assert_never(file)
