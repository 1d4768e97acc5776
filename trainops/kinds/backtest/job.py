"""A backtest: one step is one bar."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainops.kinds.backtest.broker import Broker
from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.drivers import Driver, EventDriver, VectorDriver
from trainops.kinds.backtest.fingerprint import Fingerprint
from trainops.kinds.backtest.report import report_of
from trainops.kinds.backtest.result import result_of
from trainops.kinds.backtest.strategy import Strategy, StrategyContext
from trainops.kinds.backtest.streams import are_trades, is_equity
from trainops.kinds.backtest.summary import AccountEquity, equity_of, require_summary, summary_of
from trainops.market.prices import Prices, between, read_prices
from trainops.market.resampling import resample
from trainops.market.times import iso
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError
from trainops.runtime.job import Metrics, StateDict

PARTS = {"state", "broker", "strategy", "equity", "trades"}
POINTS = 200  # of the curve, where the config does not say
MAX_CHUNK = 10_000


class BacktestJob:
    """A strategy that meets one bar after the other.

    Safe points lie between bars: the bar's orders are filled, its equity is written down, and the
    strategy has given its orders for the next. What is open after the last bar stays open in the
    state, so that a backtest can continue over newer bars; only the report closes it.
    """

    unit: ClassVar[str] = "bar"
    is_same_when_plain: ClassVar[bool] = True  # there is one implementation

    def __init__(
        self,
        config: BacktestConfig,
        inputs: Mapping[str, Path],
        *,
        prices: Prices | None = None,  # where they have been read already
    ) -> None:
        self.config = config
        self.prices = load_prices(config, inputs) if prices is None else prices
        self.chunk_bars = config.chunk_bars or min(MAX_CHUNK, -(-len(self.prices) // POINTS))
        recipe = config.find_recipe()
        strategy = recipe.builder()(
            recipe.parse_parameters(config.parameters), StrategyContext(config.seed, inputs)
        )
        self.strategy = strategy
        self.identity = dict(strategy.identity)
        self.driver = choose_driver(strategy, config, self.prices)
        self.broker = Broker(config, self.prices)
        self.account = AccountEquity(config.cash, config.cash)
        self.fingerprint = Fingerprint(self.prices)

    @property
    def step(self) -> int:
        return self.broker.next_bar

    @property
    def total_steps(self) -> int:
        return len(self.prices)

    @property
    def place(self) -> str:
        if not self.step:
            return "before the first bar"
        return iso(int(self.prices.times[self.step - 1]))[:10]

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_bars

    def advance(self) -> Metrics:
        chunk = self.chunk_bars
        end = min((self.step // chunk + 1) * chunk, self.total_steps)
        self.driver.go(self.broker, end)
        self.account = self.account.after(self.broker.end_chunk())
        is_point = self.step % chunk == 0 or self.step == self.total_steps
        return self.account.metrics() if is_point else {}

    def state_dict(self) -> StateDict:
        return {
            "state": self._summary(self.broker, self.account),
            "broker": self.broker.state_dict(),
            "strategy": {"identity": self.identity, "remembered": self.driver.state_dict()},
            "equity": self.broker.equity,
            "trades": self.broker.trades,
        }

    def objects(self) -> Mapping[str, Any]:
        return {"strategy": self.strategy}

    def load_state_dict(self, state: StateDict) -> None:
        if state.keys() != PARTS:
            raise IncompatibleState(f"the state has {sorted(state)}; it needs {sorted(PARTS)}")
        if not (is_equity(state["equity"]) and are_trades(state["trades"])):
            raise IncompatibleState("equity and trades are not the streams of a backtest")
        bar = len(state["equity"])
        if bar > self.total_steps:
            raise IncompatibleState(f"the state is at bar {bar} of {self.total_steps}")
        broker = self.broker.thawed(state["broker"], state["equity"], state["trades"], bar)
        account = equity_of(state["equity"], self.config.cash)
        require_summary(state["state"], self._summary(broker, account))
        self.driver.load_state_dict(self._remembered(state))  # changes nothing unless it fits
        self.broker, self.account = broker, account

    def _remembered(self, state: StateDict) -> Any:
        saved = state["strategy"]
        if type(saved) is not dict or saved.keys() != {"identity", "remembered"}:
            raise IncompatibleState("the strategy's part has no identity and memory")
        if saved["identity"] != self.identity:
            raise IncompatibleState(
                f"the strategy was made of {saved['identity']}, this one of {self.identity}"
            )
        return saved["remembered"]

    def _summary(self, broker: Broker, account: AccountEquity) -> dict[str, Any]:
        return summary_of(broker, account, self.config.monitor, self.fingerprint)

    def result(self) -> Mapping[str, Any]:
        outcome = result_of(self.broker, self.config, self.step)
        return {
            "recipe": self.config.recipe,
            "execution": "vector" if isinstance(self.driver, VectorDriver) else "event",
            "bars": self.step,
            "refused_orders": int(self.broker.account["refused"]),
            "liquidations": int(self.broker.account["liquidations"]),
            **report_of(self.prices, outcome, self.config.cash),
        }


def load_prices(config: BacktestConfig, inputs: Mapping[str, Path]) -> Prices:
    """Return the series that the config names. Raises InputError."""
    if config.dataset not in inputs:
        raise InputError({"dataset": f"dataset {config.dataset} does not exist"})
    prices = read_prices(
        inputs[config.dataset],
        config.columns,
        symbol=config.symbol,
        symbols=config.symbols,
        timezone=config.timezone,
    )
    prices = between(prices, config.start, config.until)
    return prices if config.resample is None else resample(prices, config.resample)


def choose_driver(strategy: Strategy, config: BacktestConfig, prices: Prices) -> Driver:
    """Return the form of the strategy that the config asks for.

    Raises ConfigError, and InputError where there are more symbols than it trades.
    """
    if len(prices.symbols) > 1 and not strategy.trades_several:
        raise InputError(
            {
                "symbols": f"{config.recipe} trades one symbol; allowed: one of "
                f"{', '.join(prices.symbols[:50])}"
            }
        )
    forms = {"vector": strategy.vector, "event": strategy.event}
    there_are = [name for name, form in forms.items() if form is not None]
    wanted = there_are[0] if config.execution == "auto" else config.execution
    if wanted not in there_are:
        allowed = ", ".join(["auto", *there_are])
        problem = f"got {wanted!r}; {config.recipe} does not support it; allowed: {allowed}"
        raise ConfigError({"execution": problem})
    if wanted == "vector" and strategy.vector is not None:
        return VectorDriver(strategy.vector, prices)
    if strategy.event is None:
        raise ValueError(f"{config.recipe} supports neither vector nor event execution")
    return EventDriver(strategy.event, is_same_close=config.fill == "same_close")
