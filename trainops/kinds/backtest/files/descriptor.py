"""The files of backtests: tables, and our own checkpoints. No other tool's files are read."""

from trainops.files.kind_files import KindFiles

TABLES = "trainops.kinds.backtest.tables"

FILES = KindFiles(
    checks="trainops.kinds.backtest.files.state:CHECKS",
    tables={"trades": f"{TABLES}:trades", "equity": f"{TABLES}:equity"},
)
