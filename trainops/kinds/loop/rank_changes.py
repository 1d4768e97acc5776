"""Loaders with which a loop continues only with as many ranks."""

from collections.abc import Iterator

from trainops.kinds.loop.config import LoopConfig
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.several import SeveralLoaders
from trainops.kinds.loop.streams import StreamBatches
from trainops.runtime.errors import IncompatibleState, InputError


def require_fixed_nodes(run: Run, config: LoopConfig) -> None:
    """Raise InputError where an attempt may have fewer ranks than a dataset has shards."""
    nodes = config.num_nodes
    shards = [name for name, source in _streams(run) if source.shards_itself]
    if shards and nodes.smallest < nodes.largest:
        problem = f"got {nodes.smallest}, and the dataset {shards[0]!r} shards itself by the ranks"
        raise InputError({"min_nodes": f"{problem}; allowed: nodes ({nodes.largest})"})


def planned_ranks(config: LoopConfig, before: int) -> int:
    """Return for how many ranks a state of `before` ranks is checked: as many, where possible."""
    nodes, processes = config.num_nodes, config.num_processes
    possible = [processes * each for each in range(nodes.smallest, nodes.largest + 1)]
    return before if before in possible else possible[-1]


def require_same_ranks(run: Run, before: int, planned: int) -> None:
    """Raise IncompatibleState for loaders that continue only with as many ranks.

    Places in iterable datasets at which this is so are found when the loop comes to them.
    """
    for _, source in _streams(run):
        source.planned_ranks = planned
    if before == planned:
        return
    for name, source in _streams(run):
        if source.shards_itself:
            what = f"the dataset {name!r} shards itself"
            raise IncompatibleState(_problem(what, before, planned))
    for name, each in run.kept.items():
        if isinstance(each, SeveralLoaders) and each.has_streams:
            what = f"the loaders {name!r} have an iterable dataset"
            raise IncompatibleState(_problem(what, before, planned))


def _streams(run: Run) -> Iterator[tuple[str, StreamBatches]]:
    for name, source in run.sources.items():
        if isinstance(source, StreamBatches):
            yield name, source


def _problem(what: str, before: int, now: int) -> str:
    return f"{what}, and had {before} ranks; now there are {now}; allowed: {before}"
