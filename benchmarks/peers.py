"""The rule of `benchmarks.backtest` in other libraries: run by a Python that has them installed.

Usage: python benchmarks/peers.py NAME BARS.npz NUM_BARS. Prints JSON; exits with 3 where the
library is not there. Imports and compiling are not timed.
"""

import json
import sys
import time
import warnings
from importlib.util import find_spec

MODULES = {"backtesting.py": "backtesting", "vectorbt": "vectorbt", "backtrader": "backtrader"}
FAST, SLOW, COMMISSION, CASH = 20, 60, 0.0005, 1e6


def backtesting_py(frame):
    from backtesting import Backtest, Strategy
    from backtesting.lib import crossover

    class Crossing(Strategy):
        def init(self):
            close = self.data.Close.s
            self.fast = self.I(lambda: close.rolling(FAST).mean())
            self.slow = self.I(lambda: close.rolling(SLOW).mean())

        def next(self):
            if crossover(self.fast, self.slow):
                self.buy()
            elif crossover(self.slow, self.fast):
                self.position.close()

    def once():
        test = Backtest(frame, Crossing, cash=CASH, commission=COMMISSION, finalize_trades=True)
        return test.run()["Equity Final [$]"]

    return once


def vectorbt(frame):
    import vectorbt as vbt

    def once():
        fast, slow = (vbt.MA.run(frame.Close, period) for period in (FAST, SLOW))
        entries = fast.ma_crossed_above(slow).shift(1, fill_value=False)
        exits = fast.ma_crossed_below(slow).shift(1, fill_value=False)
        portfolio = vbt.Portfolio.from_signals(
            frame.Close, entries, exits, price=frame.Open, fees=COMMISSION, init_cash=CASH,
            size_granularity=1.0, freq="1min",
        )  # fmt: skip
        portfolio.value()
        return portfolio.final_value()

    once()  # compiles
    return once


def backtrader(frame):
    import backtrader as bt

    class Crossing(bt.Strategy):
        def __init__(self):
            fast, slow = (bt.indicators.SMA(self.data.close, period=p) for p in (FAST, SLOW))
            self.crossing = bt.indicators.CrossOver(fast, slow)

        def next(self):
            if self.crossing > 0:
                self.order_target_percent(target=0.99)
            elif self.crossing < 0:
                self.close()

    def once():
        cerebro = bt.Cerebro(stdstats=False)
        cerebro.adddata(bt.feeds.PandasData(dataname=frame))
        cerebro.addstrategy(Crossing)
        cerebro.broker.setcash(CASH)
        cerebro.broker.setcommission(commission=COMMISSION)
        cerebro.run()
        return cerebro.broker.getvalue()

    return once


def main():
    name, path, num_bars = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if find_spec(MODULES[name]) is None:
        sys.exit(3)
    import numpy as np
    import pandas as pd

    warnings.simplefilter("ignore")
    bars = np.load(path)
    columns = {each.title(): bars[each][:num_bars] for each in ("open", "high", "low", "close")}
    frame = pd.DataFrame(columns, index=pd.DatetimeIndex(bars["time"][:num_bars]))
    frame["Volume"] = 0.0
    once = {"backtesting.py": backtesting_py, "vectorbt": vectorbt, "backtrader": backtrader}[name](
        frame
    )
    seconds = []
    for _ in range(3 if name == "vectorbt" else 1):
        began = time.perf_counter()
        equity = float(np.asarray(once()).reshape(-1)[0])
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": seconds, "equity": equity, "bars": num_bars}))


if __name__ == "__main__":
    main()
