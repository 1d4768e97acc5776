"""The files of backtests: tables, and our own checkpoints. No other tool's files are read."""

from trainops.formats.kind_files import KindFiles

TABLES = "trainops.engines.backtest.tables"

FILES = KindFiles(
    checks="trainops.engines.backtest.files.state:CHECKS",
    tables={"trades": f"{TABLES}:trades", "equity": f"{TABLES}:equity"},
)
