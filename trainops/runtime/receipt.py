"""The receipt: what a resumed attempt restored, and whether that is exact."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReceiptItem:
    """One thing that a resumed run needs to be the same as before."""

    part: str
    restored: bool = True
    exact: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where an attempt starts, and from what. `checkpoint` is a directory's name, None at first."""

    step: int
    checkpoint: str | None = None
    items: tuple[ReceiptItem, ...] = ()
    is_evaluating: bool = False  # what is recorded at `step` is yet to be measured

    @property
    def measured_to(self) -> int:
        """The last step whose points are not measured again."""
        return self.step - self.is_evaluating

    @property
    def exact(self) -> bool:
        """Whether every later step is bit for bit what it would have been."""
        return all(item.exact for item in self.items)

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "checkpoint": self.checkpoint,
            "exact": self.exact,
            "items": [asdict(item) for item in self.items],
        }


MATTERS = {
    "torch": "torch version",
    "device_type": "device type",
    "device_name": "device",
    "threads": "threads",
    "cpu_capability": "CPU instructions",
    "processor": "processor",
    "deterministic": "deterministic algorithms",
}


def compare_environments(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[ReceiptItem, ...]:
    """Return an item for each circumstance that decides the last bits of a sum."""
    return tuple(
        ReceiptItem(part, exact=True, note=str(now.get(key)))
        if before.get(key) == now.get(key)
        else ReceiptItem(
            part, restored=False, exact=False, note=f"was {before.get(key)}, is {now.get(key)}"
        )
        for key, part in MATTERS.items()
    )
