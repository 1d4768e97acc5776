"""The receipt: what a resumed attempt restored, and whether that is exact."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from trainops.runtime.implementation import Implementation


@dataclass(frozen=True, slots=True)
class ReceiptItem:
    """One thing that a resumed run needs to be the same as before."""

    part: str
    restored: bool = True
    exact: bool = True
    note: str = ""

    def to_json(self) -> "ReceiptItemJson":
        return {
            "part": self.part,
            "restored": self.restored,
            "exact": self.exact,
            "note": self.note,
        }


class ReceiptItemJson(TypedDict):
    """The fields of a ReceiptItem."""

    part: str
    restored: bool
    exact: bool
    note: str


class ReceiptJson(TypedDict):
    """A receipt as `Receipt.to_json` returns it and as workers over HTTP send it."""

    step: int
    checkpoint: str | None
    exact: bool
    items: list[ReceiptItemJson]
    uncertain: NotRequired[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where an attempt starts, and from what. `checkpoint` is a directory's name, None at first.

    uncertain: why no later resume is certain to be exact, by part.
    """

    step: int
    checkpoint: str | None = None
    items: tuple[ReceiptItem, ...] = ()
    is_evaluating: bool = False  # what is recorded at `step` is yet to be measured
    uncertain: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured_to(self) -> int:
        """The last step whose points are not measured again."""
        return self.step - self.is_evaluating

    @property
    def exact(self) -> bool:
        """Whether every later step is bit for bit what it would have been."""
        return all(item.exact for item in self.items)

    def to_json(self) -> ReceiptJson:
        found: ReceiptJson = {
            "step": self.step,
            "checkpoint": self.checkpoint,
            "exact": self.exact,
            "items": [item.to_json() for item in self.items],
        }
        if self.uncertain:
            found["uncertain"] = dict(self.uncertain)
        return found


MATTERS = {
    "torch": "torch version",
    "device_type": "device type",
    "device_name": "device",
    "threads": "threads",
    "cpu_capability": "CPU instructions",
    "processor": "processor",
    "deterministic": "deterministic algorithms",
}


VARYING = "off on a GPU (deterministic: false), so sums may differ each time"
CHOSEN = ("threads", "deterministic")  # by the config; the other circumstances are the machine's
NEW_RUN = "new_run"  # in the environment of a state in which nothing was computed yet


def compare_environments(
    before: Mapping[str, object],
    now: Mapping[str, object],
    *,
    is_same_when_plain: bool = False,
) -> tuple[ReceiptItem, ...]:
    """Return an item for each circumstance that decides the last bits of a sum.

    None for a new run. `is_same_when_plain`: the fast and the plain implementation of the job have
    equal results.
    """
    if before.get(NEW_RUN):
        return ()
    compared = tuple(_circumstance(key, part, before, now) for key, part in MATTERS.items())
    return (*compared, _implementation(before, now, is_same=is_same_when_plain))


def varies(environment: Mapping[str, object]) -> bool:
    """Whether two runs may differ in the last bits even where everything is the same."""
    return environment.get("device_type") == "cuda" and not environment.get("deterministic")


def uncertain(environment: Mapping[str, object]) -> dict[str, str]:
    """Return why no resume in this environment is certain to be exact, by part."""
    return {MATTERS["deterministic"]: VARYING} if varies(environment) else {}


def _circumstance(
    key: str, part: str, before: Mapping[str, object], now: Mapping[str, object]
) -> ReceiptItem:
    was, found = before.get(key), now.get(key)
    if was != found:
        return ReceiptItem(part, restored=False, exact=False, note=f"was {was}, is {found}")
    if key == "deterministic" and varies(now):
        return ReceiptItem(part, exact=False, note="not on this GPU: sums may differ each time")
    return ReceiptItem(part, note=str(found))


def _implementation(
    before: Mapping[str, object], now: Mapping[str, object], *, is_same: bool
) -> ReceiptItem:
    """Return the item of the implementation; an environment without one is of the fast one."""
    was, found = (str(each.get("implementation", Implementation.FAST)) for each in (before, now))
    if was == found:
        return ReceiptItem("implementation", note=found)
    note = f"was {was}, is {found}" + ("; both have equal results" if is_same else "")
    return ReceiptItem("implementation", restored=is_same, exact=is_same, note=note)
