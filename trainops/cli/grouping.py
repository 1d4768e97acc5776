"""Operations in groups, as `ls --group-by` lists them."""

from collections.abc import Mapping
from typing import TypedDict

from trainops.cli import looks
from trainops.cli.session import Session
from trainops.client.api import Param

MAX_GROUPS = 200


class BestOfGroup(TypedDict):
    """The best value of the objective."""

    name: str
    mode: str
    value: float


class OperationGroup(TypedDict):
    """Operations that share a value; null: those without one."""

    value: float | str | None
    label: str
    query: str
    num_operations: int
    counts: dict[str, int]
    newest_at: str
    best: BestOfGroup | None


class GroupsResponse(TypedDict):
    """The answer of `operations/groups`."""

    group_by: str
    groups: list[OperationGroup]
    has_more: bool


def say_groups(session: Session, name: str, limit: int, wanted: Mapping[str, Param]) -> None:
    """List groups by `name`, those with the newest operation first."""
    found: GroupsResponse = session.api.get(
        "operations/groups", **wanted, group_by=name, limit=min(limit, MAX_GROUPS)
    )
    if session.out.is_data:
        session.out.data(found["groups"])
        return
    if not found["groups"]:
        session.out.note("No operations.")
        return
    session.out.table(
        [name.upper(), "OPERATIONS", "STATES", "BEST", "NEWEST", "QUERY"],
        (
            [
                looks.cell(each["label"] or f"no {name}"),
                looks.cell(each["num_operations"]),
                looks.cell(_states(each["counts"])),
                looks.cell(_best(each["best"])),
                looks.cell(looks.ago(each["newest_at"])),
                looks.cell(each["query"]),
            ]
            for each in found["groups"]
        ),
    )
    if found["has_more"]:
        session.out.note(f"There are more: --limit {min(limit * 5, MAX_GROUPS)}")


def _states(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {state.lower()}" for state, number in counts.items())


def _best(best: BestOfGroup | None) -> str | None:
    return f"{best['name']} {looks.number(best['value'])}" if best else None
