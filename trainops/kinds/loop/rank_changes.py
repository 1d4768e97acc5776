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


def require_same_ranks(run: Run, config: LoopConfig, before: int, now: int) -> None:
    """Raise IncompatibleState for another number of ranks than that of the state.

    A job of one rank also checks the state of a fork, for as many ranks as its config has.
    """
    planned = config.num_processes * config.num_nodes.largest if now == 1 else now
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
