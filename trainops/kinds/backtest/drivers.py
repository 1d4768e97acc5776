"""How a strategy meets its broker: a plan made beforehand, or a question at every bar."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol

from trainops.kinds.backtest.broker import Broker
from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.remembered import remember, remembered
from trainops.kinds.backtest.strategy import EventStrategy, Signals
from trainops.market.prices import Prices
from trainops.runtime.errors import IncompatibleState

PATIENCE_SECONDS = 0.2  # after which a slow strategy comes up for air
LOOK_EVERY = 16  # bars between two looks at the clock


class Driver(Protocol):
    """Drives a broker over bars by the orders of a strategy."""

    def go(self, broker: Broker, end: int) -> None:
        """Continue to before bar `end`, or less far where that takes long."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the strategy remembers."""

    def load_state_dict(self, saved: Any) -> None:
        """Take over what was remembered, or raise IncompatibleState."""


class VectorDriver:
    """Executes signals that were computed once over the whole series."""

    def __init__(self, compute: Callable[[Prices], Signals], prices: Prices) -> None:
        signals = compute(prices)
        if signals.target.shape[:1] != (len(prices),):
            raise ValueError(f"{len(signals.target)} signals for {len(prices)} bars")
        self.plan = signals.to_plan()
        if self.plan.target.shape[1] != len(prices.symbols):
            raise ValueError(f"signals for {self.plan.target.shape[1]} symbols")

    def go(self, broker: Broker, end: int) -> None:
        broker.begin_chunk(end)
        broker.go_to(end, self.plan)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, saved: Any) -> None:
        if saved != {}:
            raise IncompatibleState("a vector strategy has no state")


class EventDriver:
    """Asks a strategy at every bar."""

    def __init__(
        self,
        make_strategy: Callable[[], EventStrategy],
        *,
        is_same_close: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_strategy = make_strategy
        self.strategy = make_strategy()
        self._is_same_close = is_same_close
        self._clock = clock
        remembered(self.strategy)  # what cannot be saved is refused now, not at a checkpoint

    def go(self, broker: Broker, end: int) -> None:
        first = broker.next_bar
        broker.begin_chunk(end)
        bars, desk = broker.prices.bars, Desk(broker)
        columns = [prices[first:end, desk.symbol].tolist() for prices in bars]
        on_bar, deadline = self.strategy.on_bar, self._clock() + PATIENCE_SECONDS
        rows = zip(range(first, end), *columns, strict=True)
        while desk.bar + 1 < end and (desk.bar < 0 or self._clock() < deadline):
            some = islice(rows, LOOK_EVERY)
            for desk.bar, desk.open, desk.high, desk.low, desk.close in some:
                on_bar(desk)
                if broker.has_ordered:
                    broker.has_ordered = False
                    if self._is_same_close:
                        broker.fill_at_close(desk.bar)
        broker.go_to(desk.bar + 1)

    def state_dict(self) -> dict[str, Any]:
        return remembered(self.strategy)

    def load_state_dict(self, saved: Any) -> None:
        strategy = self._make_strategy()
        remember(strategy, saved)
        self.strategy = strategy
