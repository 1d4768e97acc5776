"""The report of a finished backtest: SPEC 6.4 as JSON-safe numbers, None where undefined.

Rates are fractions, not percent. Risk figures are made from the equity at the end of each day,
and, where the first day has several bars, from that at its first bar.
"""

import math
from typing import Any

import numpy as np

from trainops.kinds.backtest.core.book import REASONS, Rows
from trainops.kinds.backtest.periods import daily, periods_per_year, returns_by
from trainops.kinds.backtest.result import BacktestResult
from trainops.market.bars import Floats
from trainops.market.prices import Prices
from trainops.market.times import DAY, Times, iso

CURVE_POINTS, TRADES_SHOWN, HISTOGRAM_BINS = 500, 500, 20
DAYS_PER_YEAR = 365.25
SAME = 1e-12  # the difference, relative above 1, up to which two returns are one value


def report_of(prices: Prices, outcome: BacktestResult, cash: float) -> dict[str, Any]:
    equity, trades = outcome.equity, outcome.trades
    total, market = float(equity[-1]) / cash - 1, held_equally(prices)
    return {
        "symbols": list(prices.symbols),
        "start": iso(int(prices.times[0])),
        "end": iso(int(prices.times[-1])),
        "start_equity": cash,
        "final_equity": float(equity[-1]),
        "peak_equity": float(equity.max()),
        "return": total,
        "buy_and_hold_return": float(market[-1]) - 1,
        "exposure": exposure(outcome),
        **against(market, equity, total),
        **risk(prices, equity),
        **trading(trades),
        "years": returns_by("Y", prices, equity, cash),
        "months": returns_by("M", prices, equity, cash),
        "curve": curve(prices, equity),
        "trade_list": [_trade(row, prices) for row in trades[-TRADES_SHOWN:]],
        "trade_returns": histogram(trade_returns(trades)),
    }


def held_equally(prices: Prices) -> Floats:
    """Return at every bar what holding all symbols is worth, of 1 spent in equal parts at the
    first close.
    """
    value: Floats = np.mean(prices.bars.close / prices.bars.close[0], axis=1)
    return value


def against(market: Floats, equity: Floats, total: float) -> dict[str, float | None]:
    """Return what the strategy has to do with the market that it trades in.

    Beta: the covariance of both's logarithmic returns from bar to bar over the variance of the
    market's (Sharpe, Journal of Finance 19, 1964). Alpha: the return less beta times that of the
    market over the whole backtest, the risk-free rate taken as 0 (Jensen, Journal of Finance 23,
    1968). Undefined where equity was not above 0, or the market did not move.
    """
    if len(market) < 3 or (equity <= 0).any():
        return {"alpha": None, "beta": None}
    spread = np.cov(np.diff(np.log(equity)), np.diff(np.log(market)))
    beta = _ratio(float(spread[0, 1]), float(spread[1, 1]))
    alpha = None if beta is None else _json(total - beta * (float(market[-1]) - 1))
    return {"alpha": alpha, "beta": beta}


def risk(prices: Prices, equity: Floats) -> dict[str, float | None]:
    """Return what was earned, how unsteadily, and for how much drawdown.

    Annual return: the geometric mean of daily returns over a year. Volatility: of returns that
    compound, sqrt((var + (1 + g)²)^N - (1 + g)^2N) (Mindlin, On the relationship between
    arithmetic and geometric returns, SSRN 3054517). Sharpe: annual return over volatility, the
    risk-free rate taken as 0. Sortino: over the annual deviation of the negative returns (Sortino
    & Price 1994). Calmar: over the maximum drawdown (Young 1991). CAGR: over calendar years.
    Average drawdown: the mean of the deepest falls between a peak and the next. Once equity was
    not above 0, all was lost: the annual return is -1, and what compares it with a risk undefined.
    """
    times = prices.times
    annual, volatility, downside = -1.0, math.nan, math.nan
    is_ruined = bool((equity <= 0).any())
    if not is_ruined:
        annual, volatility, downside = _yearly(prices, equity)
    years = (int(times[-1]) - int(times[0])) / DAY / DAYS_PER_YEAR
    growth = float(equity[-1] / equity[0])
    depth, average, days = drawdown(times, equity)
    return {
        "annual_return": _json(annual),
        "cagr": _json(_power(growth, 1 / years) - 1) if years else None,
        "volatility": _json(volatility),
        "sharpe": _ratio(annual, volatility),
        "sortino": _ratio(annual, downside),
        "calmar": None if is_ruined else _ratio(annual, depth),
        "max_drawdown": depth,
        "average_drawdown": average,
        "max_drawdown_days": days,
    }


def _yearly(prices: Prices, equity: Floats) -> tuple[float, float, float]:
    """Return annual return, volatility and downside deviation of equity above 0."""
    per_year = periods_per_year(prices)
    ends = daily(prices, equity)
    changes = ends[1:] / ends[:-1] - 1
    mean = geometric_mean(changes)
    annual = _power(1 + mean, per_year) - 1
    variance = float(changes.var(ddof=1)) if len(changes) > 1 else math.nan
    spread = _power(variance + (1 + mean) ** 2, per_year) - _power(1 + mean, 2 * per_year)
    volatility = math.sqrt(max(0.0, spread)) if not math.isnan(spread) else math.nan
    downside = math.nan
    if len(changes):
        downside = float(np.sqrt(np.mean(np.minimum(changes, 0) ** 2))) * math.sqrt(per_year)
    return annual, volatility, downside


def trading(trades: Rows) -> dict[str, Any]:
    """Return how the trades went, in money after commission.

    Profit factor: gross profit over gross loss. Expectancy: the mean profit of a trade, and as a
    share of its value. SQN: sqrt(n) * mean / standard deviation (Tharp 2008). Kelly: the share of
    the account to bet, W - (1 - W) / R with the win rate W and the mean profit of a winning trade
    over the mean loss of a losing one, R (Kelly, Bell System Technical Journal 35, 1956).
    """
    profit, shares = trades["profit"], trade_returns(trades)
    count, is_win = len(trades), trades["profit"] > 0
    deviation = float(profit.std(ddof=1)) if count > 1 else math.nan
    return {
        "trades": count,
        "trades_by_reason": {
            name: int((trades["reason"] == number).sum()) for number, name in enumerate(REASONS)
        },
        "commission": float(trades["commission"].sum()),
        "win_rate": _json(float(is_win.mean())) if count else None,
        "profit_factor": _ratio(float(profit[is_win].sum()), -float(profit[profit < 0].sum())),
        "expectancy": _json(float(profit.mean())) if count else None,
        "expectancy_return": _json(float(shares.mean())) if count else None,
        "best_trade": _json(float(shares.max())) if count else None,
        "worst_trade": _json(float(shares.min())) if count else None,
        "average_trade": _json(geometric_mean(shares)) if count else None,
        "kelly": kelly(profit),
        "sqn": _ratio(math.sqrt(count) * float(profit.mean()), deviation) if count else None,
    }


def kelly(profit: Floats) -> float | None:
    """Return Kelly's criterion; None without a winning and a losing trade."""
    won, lost = profit[profit > 0], profit[profit < 0]
    if not len(won) or not len(lost):
        return None
    win_rate = len(won) / len(profit)
    return _json(win_rate - (1 - win_rate) / float(won.mean() / -lost.mean()))


def trade_returns(trades: Rows) -> Floats:
    """Return each trade's profit as a share of what it cost to enter."""
    returns: Floats = trades["profit"] / (np.abs(trades["units"]) * trades["entry_price"])
    return returns


def drawdown(times: Times, equity: Floats) -> tuple[float, float, float]:
    """Return the deepest fall from a peak, the mean of the deepest falls from all peaks, and the
    most days until a peak was reached again.
    """
    peaks = np.maximum.accumulate(equity)
    at_peak = np.flatnonzero(equity == peaks)
    falls = np.maximum.reduceat(1 - equity / peaks, at_peak)
    falls = falls[falls > 0]
    depth, average = (float(falls.max()), float(falls.mean())) if len(falls) else (0.0, 0.0)
    ends = np.append(at_peak[1:], len(equity) - 1)
    longest = (times[ends] - times[at_peak])[ends - at_peak > 1]
    return depth, average, float(longest.max()) / DAY if len(longest) else 0.0


def exposure(outcome: BacktestResult) -> float:
    """Return the share of bars in which a trade was open, its first and last bar included."""
    changes = np.zeros(len(outcome.equity) + 1, dtype=np.int64)
    np.add.at(changes, outcome.trades["entry_bar"], 1)
    np.add.at(changes, outcome.trades["exit_bar"] + 1, -1)
    np.add.at(changes, outcome.held_since, 1)
    return float((np.cumsum(changes[:-1]) > 0).mean())


def geometric_mean(returns: Floats) -> float:
    """Return the constant return that compounds to the same; NaN where all was lost once."""
    if not len(returns):
        return 0.0
    if (returns <= -1).any():
        return math.nan
    return math.expm1(float(np.log1p(returns).sum()) / len(returns))


def curve(prices: Prices, equity: Floats) -> list[list[Any]]:
    """Return (time, equity, drawdown, first symbol's close) at evenly spaced bars and the last."""
    fall, close = 1 - equity / np.maximum.accumulate(equity), prices.bars.close[:, 0]
    chosen = np.unique(np.linspace(0, len(equity) - 1, CURVE_POINTS).round().astype(np.int64))
    return [
        [iso(int(prices.times[i])), float(equity[i]), float(fall[i]), float(close[i])]
        for i in chosen
    ]


def histogram(returns: Floats) -> dict[str, list[float]]:
    """Return how many trades returned how much: counts, and the edges of their bins.

    Returns that differ only by rounding are counted as one value.
    """
    if not len(returns):
        return {"counts": [], "edges": []}
    if np.ptp(returns) <= SAME * max(1.0, np.abs(returns).max()):
        returns = np.full(len(returns), returns[0])
    counts, edges = np.histogram(returns, bins=HISTOGRAM_BINS)
    return {"counts": counts.tolist(), "edges": edges.tolist()}


def _trade(row: Any, prices: Prices) -> dict[str, Any]:
    times = prices.times
    trade = dict(zip(row.dtype.names, row.tolist(), strict=True))
    return {
        **{name: _json(value) for name, value in trade.items()},
        "symbol": prices.symbols[trade["symbol"]],
        "reason": REASONS[trade["reason"]],
        "entry_time": iso(int(times[trade["entry_bar"]])),
        "exit_time": iso(int(times[trade["exit_bar"]])),
    }


def _ratio(value: float, by: float) -> float | None:
    return _json(value / by) if by else None


def _power(value: float, exponent: float) -> float:
    try:
        return value**exponent if value >= 0 else math.nan
    except OverflowError:
        return math.nan


def _json(value: float) -> float | None:
    """JSON knows no NaN and no infinity."""
    return value if math.isfinite(value) else None
