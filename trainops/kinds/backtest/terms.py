"""The broker's terms, as the core reads them."""

import numpy as np

from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.core.book import SETTINGS, Rows


def settings_of(config: BacktestConfig) -> Rows:
    settings = np.zeros(1, dtype=SETTINGS)
    settings["commission_relative"] = config.commission.relative
    settings["commission_fixed"] = config.commission.fixed
    settings["commission_minimum"] = config.commission.minimum
    settings["half_spread"] = config.spread / 2
    settings["slippage"] = config.slippage
    settings["leverage"] = 1 / config.margin
    settings["maintenance"] = config.maintenance_margin
    settings["sizing"] = config.sizing.amount
    settings["sizing_is_units"] = config.sizing.by == "units"
    settings["whole_units"] = config.sizing.whole_units
    settings["fixed_for_each_unit"] = config.sizing.fixed_commission_for_each_unit
    settings["same_close"] = config.fill == "same_close"
    return settings
