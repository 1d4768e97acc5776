"""What a state was made of, and whether it can go on here."""

import hashlib
from collections.abc import Mapping
from typing import Any

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import Space
from trainops.runtime import lossless
from trainops.runtime.errors import IncompatibleState

VERSION = 3
# Nothing in the state follows from these.
IRRELEVANT = {"exact", "checkpoint", "restart", "limits", "resources"}


def provenance_of(config: RlConfig, space: Space) -> dict[str, Any]:
    """Return plain values that say it."""
    settings = config.model_dump(mode="json", exclude=IRRELEVANT)
    return {
        "version": VERSION,
        "substrate": {"type": space.substrate, "position_dim": space.position_dim},
        "observation_dim": space.observation_dim,
        "action_dim": len(space.actions),
        "observation_field_ids": space.field_ids,
        "meters": list(space.meters),
        "affordances": list(space.affordances),
        "config_hash": provenance_hash(settings),
        "config": settings,
    }


def provenance_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(lossless.dumps(dict(config)).encode()).hexdigest()


def check_provenance(given: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return what to say about a config that changed, "" where it did not.

    Raises IncompatibleState for the first thing that must not differ, with both values.
    """
    version = given.get("version", 1)
    if type(version) is not int or version < VERSION:
        raise IncompatibleState(
            f"version is {version!r}; {VERSION} is expected. Older states do not say what world "
            "they are of: retrain"
        )
    for name, label in (
        ("version", "version"),
        ("substrate", "the substrate"),
        ("observation_dim", "the observation dimension"),
        ("action_dim", "the action dimension"),
        ("observation_field_ids", "the fields of observations"),
        ("meters", "meters"),
        ("affordances", "affordances"),
    ):
        if given[name] != own[name]:
            raise IncompatibleState(f"{label}: {given[name]!r} in the state, {own[name]!r} here")
    if given["config_hash"] == own["config_hash"]:
        return ""
    changed = "; ".join(differences(given["config"], own["config"]))
    return f"the config differs: {changed or 'only in its hash'} (fork, to go on with changes)"


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """Return each key that differs, with both values."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return [] if before == now else [f"{place} was {before!r}, is {now!r}"]
    names = [*before, *(name for name in now if name not in before)]
    return [
        change
        for name in names
        for change in differences(
            before.get(name), now.get(name), f"{place}.{name}" if place else name
        )
    ]
