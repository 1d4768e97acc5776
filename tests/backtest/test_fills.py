"""Which order is filled on which bar, at which price: on bars made by hand."""

import math

import pytest

from tests.backtest.market import DATASET, bars_of, write
from trainops.kinds.backtest.broker import Broker
from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.job import load_prices
from trainops.kinds.backtest.result import result_of, trades_of

FLAT = (100, 101, 99, 100)


@pytest.fixture
def market(tmp_path):
    """Return a broker on these bars, at the close of the first one."""

    def open_market(*rows, **config):
        config = BacktestConfig.parse(
            {
                "recipe": "buy_and_hold",
                "dataset": DATASET,
                "cash": 100_000.0,
                **config,
            }
        )
        prices = load_prices(config, write(bars_of(*rows), tmp_path))
        broker = Broker(config, prices)
        broker.begin_chunk(len(prices))
        broker.go_to(1)
        return broker

    return open_market


def entries(broker):
    return [(int(t["entry_bar"]), float(t["entry_price"]), float(t["units"]))
            for t in broker.open_trades]  # fmt: skip


def exits(broker):
    reasons = ("order", "stop_loss", "take_profit", "liquidation", "end")
    return [(int(t["exit_bar"]), float(t["exit_price"]), reasons[t["reason"]])
            for t in trades_of(broker.trades)]  # fmt: skip


def after(broker):
    broker.go_to(len(broker.prices))
    broker.end_chunk()
    return broker


@pytest.mark.slow
def test_a_market_order_is_filled_at_the_next_open(market):
    broker = market(FLAT, (105, 107, 104, 106))
    broker.place(3, bar=0)
    assert entries(after(broker)) == [(1, 105.0, 3.0)]


def test_a_market_order_is_filled_at_the_same_close_where_that_is_wanted(market):
    broker = market(FLAT, (105, 107, 104, 106), fill="same_close")
    broker.place(3, bar=0)
    broker.fill_at_close(0)
    assert entries(broker) == [(0, 100.0, 3.0)]


@pytest.mark.parametrize(
    ("units", "limit", "bar", "price"),
    [
        (1, 98, (100, 102, 97, 101), 98),  # reached inside the bar
        (1, 98, (96, 99, 95, 97), 96),  # opens better: gets the open
        (1, 98, (100, 102, 98.5, 101), None),
        (-1, 104, (100, 105, 97, 101), 104),
        (-1, 104, (106, 107, 105, 106), 106),
        (-1, 104, (100, 103, 97, 101), None),
    ],
)
def test_a_limit_order_gets_its_limit_or_better(market, units, limit, bar, price):
    broker = market(FLAT, bar)
    broker.place(units, limit=limit, bar=0)
    assert entries(after(broker)) == ([(1, price, units)] if price else [])


@pytest.mark.parametrize(
    ("units", "stop", "bar", "price"),
    [
        (1, 104, (100, 105, 97, 101), 104),
        (1, 104, (106, 107, 105, 106), 106),  # opens beyond: gets the worse open
        (1, 104, (100, 103, 97, 101), None),
        (-1, 98, (100, 102, 97, 101), 98),
        (-1, 98, (96, 99, 95, 97), 96),
    ],
)
def test_a_stop_order_gets_its_stop_or_worse(market, units, stop, bar, price):
    broker = market(FLAT, bar)
    broker.place(units, stop=stop, bar=0)
    assert entries(after(broker)) == ([(1, price, units)] if price else [])


@pytest.mark.parametrize(
    ("bars", "found"),
    [
        ([(100, 105, 97, 101)], [(1, 104, 1.0)]),  # triggered within the limit
        ([(108, 109, 103, 104)], []),  # opens beyond stop and limit; whether it came back...
        ([(108, 109, 103, 104), (107, 108, 105, 106)], [(2, 106, 1.0)]),  # ...only the next tells
        ([(108, 109, 103, 104), (103, 104, 102, 103)], [(2, 103, 1.0)]),
    ],
)
def test_a_stop_limit_order_waits_for_its_limit_once_it_is_triggered(market, bars, found):
    broker = market(FLAT, *bars)
    broker.place(1, stop=104, limit=106, bar=0)
    assert entries(after(broker)) == found


def test_an_order_for_one_bar_is_gone_after_it(market):
    broker = market(FLAT, FLAT, (98, 99, 90, 95))
    broker.place(1, limit=97, bar=0, last_bar=1)
    broker.place(2, limit=96, bar=0)
    assert entries(after(broker)) == [(2, 96.0, 2.0)]


@pytest.mark.parametrize(
    ("bar", "found"),
    [
        ((100, 103, 94, 101), (95, "stop_loss")),
        ((93, 96, 92, 94), (93, "stop_loss")),
        ((100, 106, 96, 101), (105, "take_profit")),
        ((108, 109, 107, 108), (108, "take_profit")),
        ((100, 106, 94, 101), (95, "stop_loss")),  # both: the worse is taken to come first
    ],
)
def test_what_protects_a_trade_closes_it(market, bar, found):
    broker = market(FLAT, FLAT, bar)
    broker.place(1, bar=0, stop_loss=95, take_profit=105)
    assert exits(after(broker)) == [(2, *found)]


@pytest.mark.parametrize(
    ("bar", "found"),
    [
        ((100, 106, 96, 101), (95, "stop_loss")),
        ((100, 104, 93, 101), (94, "take_profit")),
        ((107, 108, 106, 107), (107, "stop_loss")),
    ],
)
def test_what_protects_a_short_trade_is_the_other_way_round(market, bar, found):
    broker = market(FLAT, FLAT, bar)
    broker.place(-1, bar=0, stop_loss=105 if found[0] != 95 else 106, take_profit=94)
    expected = {95: (106, "stop_loss")}.get(found[0], found)
    assert exits(after(broker)) == [(2, *expected)]


def test_a_trade_opened_at_the_open_can_be_stopped_in_the_same_bar(market):
    broker = market(FLAT, (100, 101, 94, 96))
    broker.place(1, bar=0, stop_loss=95)
    assert exits(after(broker)) == [(1, 95.0, "stop_loss")]


def test_a_trade_opened_by_a_limit_inside_a_bar_is_stopped_in_it_but_takes_no_profit(market):
    stopped = market(FLAT, (100, 110, 90, 100))
    stopped.place(1, limit=98, bar=0, stop_loss=95, take_profit=105)
    assert exits(after(stopped)) == [(1, 95.0, "stop_loss")]
    waits = market(FLAT, (100, 110, 97, 100))  # the high may have come before the entry
    waits.place(1, limit=98, bar=0, stop_loss=95, take_profit=105)
    assert exits(after(waits)) == []


def test_a_trade_opened_by_a_stop_inside_a_bar_takes_its_profit_on_the_way(market):
    broker = market(FLAT, (100, 110, 99, 100))
    broker.place(1, stop=103, bar=0, stop_loss=95, take_profit=108)
    assert exits(after(broker)) == [(1, 108.0, "take_profit")]


def test_spread_and_slippage_are_against_every_market_and_stop_order(market):
    broker = market(FLAT, (100, 101, 99, 100), (100, 101, 90, 95), spread=0.02, slippage=0.01)
    broker.place(1, bar=0, stop_loss=92)
    broker.place(-2, limit=104, bar=0)
    after(broker)
    (trade,) = trades_of(broker.trades)
    assert trade["entry_price"] == pytest.approx(102.0)  # half of 2 % and 1 %
    assert trade["exit_price"] == pytest.approx(92 * 0.98)


def test_a_limit_order_is_filled_when_the_quote_reaches_it(market):
    broker = market(FLAT, (100, 101, 98, 100), (100, 101, 97, 100), spread=0.02)
    broker.place(1, limit=98, bar=0)  # the ask is 1 % above: 98.98, then 97.97
    assert entries(after(broker)) == [(2, 98.0, 1.0)]


@pytest.mark.parametrize(
    ("terms", "paid"),
    [
        ({"relative": 0.001}, 0.3),
        ({"relative": 0.001, "fixed": 2.0}, 2.3),
        ({"relative": 0.001, "minimum": 5.0}, 5.0),
        ({"relative": 0.001, "fixed": 6.0, "minimum": 5.0}, 6.3),
    ],
)
def test_a_commission_is_fixed_and_relative_and_at_least_the_minimum(market, terms, paid):
    broker = market(FLAT, FLAT, commission=terms)
    broker.place(3, bar=0)
    after(broker)
    assert broker.account["cash"] == pytest.approx(100_000 - 300 - paid)


def test_an_order_of_the_other_direction_closes_the_oldest_trades_first(market):
    broker = market(FLAT, (100, 101, 99, 100), (102, 103, 101, 102), (104, 105, 103, 104))
    broker.place(2, bar=0)
    broker.go_to(2)
    broker.place(3, bar=1)
    broker.go_to(3)
    broker.place(-4, bar=2)
    after(broker)
    assert [float(t["units"]) for t in trades_of(broker.trades)] == [2.0, 2.0]
    assert entries(broker) == [(2, 102.0, 1.0)]


def test_a_larger_order_of_the_other_direction_turns_the_position(market):
    broker = market(FLAT, FLAT, FLAT)
    broker.place(2, bar=0)
    broker.go_to(2)
    broker.place(-5, bar=1)
    assert entries(after(broker)) == [(2, 100.0, -3.0)]


def test_what_the_margin_does_not_cover_is_refused(market):
    broker = market(FLAT, FLAT, cash=1000.0)
    broker.place(11, bar=0)
    assert entries(after(broker)) == [] and broker.account["refused"] == 1
    levered = market(FLAT, FLAT, cash=1000.0, margin=0.5)
    levered.place(20, bar=0)
    assert entries(after(levered)) == [(1, 100.0, 20.0)]


@pytest.mark.parametrize(("cash", "is_filled"), [(1004.9, False), (1005.0, True)])
def test_the_margin_covers_the_commission_too(market, cash, is_filled):
    broker = market(FLAT, FLAT, cash=cash, commission={"fixed": 5.0})
    broker.place(10, bar=0)
    assert entries(after(broker)) == ([(1, 100.0, 10.0)] if is_filled else [])
    assert broker.account["cash"] == (0.0 if is_filled else cash)


@pytest.mark.parametrize(
    ("config", "units"),
    [
        ({}, 9.0),
        ({"margin": 0.5}, 19.0),
        ({"sizing": {"whole_units": False}}, 1000 / 102),
        ({"commission": {"relative": 0.1}}, 8.0),
        ({"commission": {"fixed": 100.0}}, 8.0),
        ({"commission": {"minimum": 300.0}}, 6.0),
        ({"commission": {"fixed": 10.0},
          "sizing": {"fixed_commission_for_each_unit": True}}, 8.0),
    ],
)  # fmt: skip
def test_a_fraction_of_the_equity_buys_what_it_pays_for(market, config, units):
    broker = market(FLAT, (102, 103, 101, 102), cash=1000.0, **config)
    broker.place(1.0, is_fraction=True, bar=0)
    ((_, _, held),) = entries(after(broker))
    assert held == pytest.approx(units)


def test_a_position_that_the_equity_no_longer_carries_is_liquidated(market):
    broker = market(
        FLAT, FLAT, (70, 71, 60, 65), FLAT, cash=1000.0, margin=0.25, maintenance_margin=0.1
    )
    broker.place(30, bar=0)
    broker.place(1, limit=50, bar=0)
    after(broker)
    assert exits(broker) == [(2, 65.0, "liquidation")]
    assert broker.account["liquidations"] == 1 and not len(broker.open_orders)
    assert broker.account["cash"] == pytest.approx(1000 - 30 * 35)


def test_who_has_lost_everything_buys_nothing_more(market):
    broker = market(FLAT, FLAT, (70, 71, 60, 65), FLAT, FLAT, cash=1000.0, margin=0.25)
    broker.place(30, bar=0)
    broker.go_to(3)
    assert broker.value() < 0
    broker.place(1.0, is_fraction=True, bar=2)
    broker.place(1, bar=2)
    after(broker)
    assert not len(broker.open_trades) and broker.account["refused"] == 2


def test_a_switch_cancels_closes_and_enters(market):
    broker = market(FLAT, FLAT, (104, 105, 103, 104))
    broker.place(3, bar=0)
    broker.place(1, limit=50, bar=0)
    broker.go_to(2)
    broker.switch(-1.0, bar=1, stop_loss=120)
    after(broker)
    assert exits(broker) == [(2, 104.0, "order")]
    assert entries(broker) == [(2, 104.0, -961.0)]  # 100,012 pays for so many
    assert not len(broker.open_orders)
    assert math.isclose(broker.open_trades["stop_loss"][0], 120)


def test_the_tables_grow_with_the_orders(market):
    broker = market(FLAT, FLAT, FLAT)
    for number in range(500):
        broker.place(1, bar=0, limit=10.0 + number % 3)
        broker.place(1, bar=0)
    after(broker)
    assert (len(broker.open_orders), len(broker.open_trades)) == (500, 500)


def test_a_part_of_a_trade_bears_its_part_of_the_commission(market):
    broker = market(FLAT, FLAT, FLAT, commission={"fixed": 8.0})
    broker.place(4, bar=0)
    broker.go_to(2)
    broker.place(-1, bar=1)
    after(broker)
    (closed,) = trades_of(broker.trades)
    assert closed["commission"] == 8 / 4 + 8
    assert broker.open_trades["entry_commission"].tolist() == [6.0]


def test_what_rounding_leaves_of_a_trade_is_closed(market):
    """0.1 + 0.2 - 0.3 is 2.8e-17: no trade stays open, and nothing is paid for it."""
    broker = market(FLAT, FLAT, FLAT, FLAT, commission={"minimum": 1.0})
    for bar, units in enumerate((0.1, 0.2, -0.3)):
        broker.go_to(bar + 1)
        broker.place(units, bar=bar)
    after(broker)
    assert entries(broker) == []
    assert trades_of(broker.trades)["units"].tolist() == [0.1, 0.2]
    assert broker.account["commission"] == 3.0


def test_what_rounding_leaves_of_an_order_opens_nothing(market):
    broker = market(FLAT, FLAT, FLAT, FLAT, FLAT)
    for bar, units in enumerate((0.1, 0.1, 0.1, -0.3)):  # 0.3 - 0.1 - 0.1 - 0.1 is -2.8e-17
        broker.go_to(bar + 1)
        broker.place(units, bar=bar)
    after(broker)
    assert entries(broker) == [] and len(trades_of(broker.trades)) == 3
    assert broker.account["refused"] == 0


def test_what_rounding_leaves_of_the_free_margin_buys_nothing(market):
    for cash in range(1000, 1020):
        broker = market(*[FLAT] * 3, cash=cash + 0.7, sizing={"whole_units": False})
        for bar in range(2):
            broker.go_to(bar + 1)
            broker.place(1.0, is_fraction=True, bar=bar)
        assert len(entries(after(broker))) == 1
        assert broker.account["refused"] == 1


@pytest.mark.parametrize("share", [0.4, 0.1])
def test_closing_shares_of_a_trade_leaves_nothing_of_it(market, share):
    broker = market(*[FLAT] * 13, sizing={"whole_units": False})
    broker.place(0.7, bar=0)
    for bar in range(1, 1 + math.ceil(1 / share)):
        broker.go_to(bar + 1)
        for trade in broker.open_trades.copy():
            broker.place(-0.7 * share, bar=bar, trade=int(trade["id"]))
    after(broker)
    assert entries(broker) == []
    assert trades_of(broker.trades)["units"].sum() == pytest.approx(0.7)


def test_a_remainder_that_was_meant_stays_open(market):
    broker = market(FLAT, FLAT, FLAT)
    broker.place(1.0, bar=0)
    broker.go_to(2)
    broker.place(-(1 - 2e-9), bar=1)
    ((_, _, units),) = entries(after(broker))
    assert units == pytest.approx(2e-9)


@pytest.mark.parametrize(
    ("terms", "paid"),
    [
        ({"fixed": 5.0}, 5.0),
        ({"minimum": 4.0}, 4.0),
        ({"relative": 0.01, "minimum": 6.0}, 7.0),  # 1 % of 7 units at 100
        ({"relative": 0.01, "fixed": 1.0}, 8.0),
    ],
)
def test_an_order_that_closes_trades_and_opens_one_pays_once(market, terms, paid):
    broker = market(FLAT, FLAT, FLAT, FLAT, commission=terms)
    broker.place(2, bar=0)
    broker.place(1, bar=0)
    broker.go_to(2)
    before = float(broker.account["commission"])
    broker.place(-7, bar=1)
    after(broker)
    assert broker.account["commission"] - before == pytest.approx(paid)
    assert entries(broker) == [(2, 100.0, -4.0)]
    trades = trades_of(broker.trades)
    of_trades = trades["commission"].sum() + broker.open_trades["entry_commission"].sum()
    assert of_trades == pytest.approx(broker.account["commission"])


def test_the_rest_of_an_order_is_made_to_fit_what_its_commission_leaves(market):
    """Of 9.9 units one closes the trade and pays; the other 8.9 pay nothing more."""
    broker = market(
        FLAT, FLAT, FLAT, cash=1010.0, commission={"fixed": 10.0}, sizing={"whole_units": False}
    )
    broker.place(1, bar=0)
    broker.go_to(2)
    broker.place(-1.0, is_fraction=True, bar=1)
    ((_, _, units),) = entries(after(broker))
    assert units == pytest.approx(-8.9)
    assert broker.account["commission"] == 20.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "order", "exit_bar", "price"),
    [
        ({"fill": "same_close"}, {}, 1, 106.0),  # entered at the last close itself
        ({"fill": "next_open"}, {"stop": 106.5}, 1, 106.0),  # inside the last bar
        ({"fill": "next_open"}, {}, 1, 105.0),  # at its open, where such an order is filled
    ],
)
def test_the_report_closes_no_trade_before_it_was_opened(market, config, order, exit_bar, price):
    config = {"recipe": "buy_and_hold", "dataset": DATASET, "finish": "open", **config}
    broker = market(FLAT, (105, 107, 104, 106), **config)
    at = 1 if config["fill"] == "same_close" else 0
    broker.go_to(at + 1)
    broker.place(3, bar=at, **order)
    broker.fill_at_close(at) if at else broker.go_to(2)
    broker.end_chunk()
    outcome = result_of(broker, BacktestConfig.parse(config), 2)
    assert outcome.trades[["entry_bar", "exit_bar", "exit_price"]].tolist() == [
        (1, exit_bar, price)
    ]
