"""What the built-in strategies have in common: directions, and the order that enters."""

from typing import Any, Literal

from pydantic import Field

from trainops.runtime.config import Strict


class EntryParameters(Strict):
    """How a decision becomes an order. Prices are set from the close at which it is made."""

    direction: Literal["both", "long"] = Field(
        "both", description="long: hold cash instead of going short."
    )
    entry: Literal["market", "limit", "stop"] = Field(
        "market", description="Type of the entry order."
    )
    entry_offset: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="Distance from the close, as a share of it (limit and stop only).",
    )
    stop_loss: float | None = Field(
        None, gt=0, lt=1, description="Stop loss as a share of the close; none by default."
    )
    take_profit: float | None = Field(
        None, gt=0, lt=10, description="Take profit as a share of the close; none by default."
    )

    def target(self, direction: Any) -> Any:
        """Return the position for a direction (1, -1, 0); a number or an array of them."""
        return direction * (direction > 0) if self.direction == "long" else direction

    def terms(self, close: Any, target: Any) -> dict[str, Any]:
        """Return the prices of the order that enters; for numbers, or for arrays of them."""
        terms: dict[str, Any] = {}
        if self.entry == "limit":
            terms["limit"] = close * (1 - target * self.entry_offset)
        if self.entry == "stop":
            terms["stop"] = close * (1 + target * self.entry_offset)
        if self.stop_loss is not None:
            terms["stop_loss"] = close * (1 - target * self.stop_loss)
        if self.take_profit is not None:
            terms["take_profit"] = close * (1 + target * self.take_profit)
        return terms


def require_slower(slow: int, fast: int | None) -> int:
    """Return `slow`. Raises ValueError unless it is above `fast`, where that is known."""
    if fast is not None and slow <= fast:
        raise ValueError(f"must be above fast ({fast})")
    return slow
