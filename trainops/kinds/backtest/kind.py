"""Backtest: a strategy trades over a price series."""

from trainops.kind import Kind, Objective, Panel, Threshold

WEB = "trainops.kinds.backtest.web"
RECIPES = "trainops.kinds.backtest.recipes"

KIND = Kind(
    name="backtest",
    label="Backtest",
    description="A strategy trades on a price series, bar by bar",
    order=20,
    unit="bar",
    config="trainops.kinds.backtest.config:BacktestConfig",
    job="trainops.kinds.backtest.job:BacktestJob",
    positions="trainops.kinds.backtest.position",
    demo="trainops.kinds.backtest.demo:DEMO",
    recipes=(
        f"{RECIPES}.buy_and_hold:RECIPE",
        f"{RECIPES}.sma_crossover:RECIPE",
        f"{RECIPES}.ema_crossover:RECIPE",
        f"{RECIPES}.rsi_reversion:RECIPE",
        f"{RECIPES}.bollinger:RECIPE",
        f"{RECIPES}.donchian_breakout:RECIPE",
        f"{RECIPES}.macd:RECIPE",
        f"{RECIPES}.momentum_rotation:RECIPE",
        f"{RECIPES}.model:RECIPE",
    ),
    objective=Objective("sharpe", "max"),
    columns=("return", "sharpe", "max_drawdown", "trades"),
    thresholds=(
        Threshold(
            "backtest_bar_interval",
            "checkpoint.every_bars",
            10_000,
            "Bars between checkpoints of a backtest (default).",
        ),
    ),
    panels=(
        Panel(
            name="report",
            template="backtest/report.html",
            view=f"{WEB}.report:panel",
            script="backtest/report.js",
            shows_result=True,
            shows_figures=True,
        ),
    ),
    web=WEB,
    urls=f"{WEB}.urls",
    days="trainops.kinds.backtest.days:days",
    files="trainops.kinds.backtest.files.descriptor:FILES",
)
