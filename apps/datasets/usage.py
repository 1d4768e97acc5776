"""Who still needs a dataset. Apps above this one register how to ask; no arrow turns back."""

from collections.abc import Callable, Sequence

WhoUses = Callable[[str], Sequence[str]]
_registered: list[WhoUses] = []


def register(who_uses: WhoUses) -> None:
    """Add a question asked before a deletion: dataset id → ids of unfinished operations that name
    it.

    Called from AppConfig.ready; registering the same function again changes nothing.
    """
    if who_uses not in _registered:
        _registered.append(who_uses)


def users_of(dataset_id: str) -> list[str]:
    return [user for who_uses in _registered for user in who_uses(dataset_id)]


def is_in_use(dataset_id: str) -> bool:
    return bool(users_of(dataset_id))
