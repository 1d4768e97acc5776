"""Whether a file of reinforcement learning is of the world that it is to be loaded into."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainops.files.errors import InvalidFields
from trainops.files.fields import shown
from trainops.kinds.rl.files.file import RlFile


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """What a file is to be loaded into. What is None is not compared."""

    substrate_type: str | None = None
    position_dim: int | None = None
    observation_dim: int | None = None
    action_dim: int | None = None
    meter_count: int | None = None
    observation_field_uuids: tuple[str, ...] | None = None
    field_names: tuple[str, ...] = ()  # of what has these identities, to name what differs
    meters: tuple[str, ...] | None = None
    affordances: tuple[str, ...] | None = None
    config_hash: str | None = None
    training_config: Mapping[str, Any] = field(default_factory=dict)


def check_world(file: RlFile, world: WorldSpec) -> dict[str, str]:
    """Return what may differ but should be known: each changed key of the config, by place.

    Raises InvalidFields for the first thing that must not differ, with both values.
    """
    places = (
        ("substrate_metadata.substrate_type", file.substrate.type, world.substrate_type),
        ("substrate_metadata.position_dim", file.substrate.position_dim, world.position_dim),
        ("observation_dim", file.observation_dim, world.observation_dim),
        ("action_dim", file.action_dim, world.action_dim),
        ("meter_count", file.meter_count, world.meter_count),
        ("affordance_layout.position_dim", file.affordances.position_dim, world.position_dim),
    )
    for place, found, wanted in places:
        if None not in (found, wanted) and found != wanted:
            raise InvalidFields({place: f"is {shown(found)} in the file and {shown(wanted)} here"})
    for place, problem in _other_names(file, world):
        raise InvalidFields({place: problem})
    if file.config_hash == world.config_hash or None in (file.config_hash, world.config_hash):
        return {}
    changed = dict(_changes(file.training_config, world.training_config, "training_config"))
    return changed or {"config_hash": "differs, though no key of training_config does"}


def _other_names(file: RlFile, world: WorldSpec) -> Iterator[tuple[str, str]]:
    """Yield a place, and which of the names there are others."""
    given, own = file.observation_field_uuids, world.observation_field_uuids
    if None not in (given, own) and given != own:
        yield "observation_field_uuids", _fields_apart(given or (), own or (), world.field_names)
    meters = file.population.universe.get("meter_names")
    if meters and world.meters is not None and tuple(meters) != world.meters:
        yield "population_state.universe_metadata.meter_names", apart(meters, world.meters)
    if world.affordances is None:
        return
    layout, here = file.affordances, world.affordances
    if strange := [name for name in layout.positions if name not in here]:
        yield "affordance_layout.positions", apart(strange, ())
    if layout.ordering and (strange := [name for name in here if name not in layout.ordering]):
        yield "affordance_layout.ordering", apart((), strange)


def _fields_apart(given: Sequence[str], own: Sequence[str], names: Sequence[str]) -> str:
    """Return which fields differ, ours with their names."""
    called = {each: f"{name} ({each})" for each, name in zip(own, names, strict=False)}
    difference = apart([called.get(each, each) for each in given], [called.get(e, e) for e in own])
    return f"{len(given)} in the file and {len(own)} here; {difference}"


def apart(given: Sequence[str], own: Sequence[str]) -> str:
    """Return how two lists of names differ."""
    only_there = [name for name in given if name not in own]
    only_here = [name for name in own if name not in given]
    if not only_there and not only_here:
        return f"{', '.join(given)} in the file, in another order here: {', '.join(own)}"
    by_place = {"only in the file": only_there, "only here": only_here}
    return "; ".join(f"{where}: {', '.join(names)}" for where, names in by_place.items() if names)


def _changes(before: Any, now: Any, place: str) -> list[tuple[str, str]]:
    """Return each key of two configs that differs, with both values."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return [] if before == now else [(place, f"was {shown(before)}, is {shown(now)}")]
    names = [*before, *(name for name in now if name not in before)]
    return [
        change
        for name in names
        for change in _changes(before.get(name), now.get(name), f"{place}.{name}")
    ]
