"""A kind of operation of a third party: it adds up, and its files are those of another tool."""

from pydantic import Field

from trainops.files.kind_files import Export, KindFiles
from trainops.kind import Kind
from trainops.runtime.config import OperationConfig
from trainops.runtime.position import Position

HERE = "tests.formats.tally"
SUMMARY, ALSO_READ, BEST = ("counted",), (), ()


class TallyConfig(OperationConfig):
    by: float = 0.5
    steps: int = Field(8, ge=1)


def position(state, step):
    return Position({"counted": step}, f"count {step}")


FILES = KindFiles(
    formats=(f"{HERE}_files:TALLY",),
    take_in=f"{HERE}_files:take_in",
    export=Export(write=f"{HERE}_files:write"),
    checks=f"{HERE}_files:CHECKS",
    tables={"sums": f"{HERE}_files:sums"},
)

KIND = Kind(
    name="tally",
    label="Tally",
    description="Adds up",
    unit="count",
    config=f"{HERE}:TallyConfig",
    job=f"{HERE}_files:TallyJob",
    positions=HERE,
    files=f"{HERE}:FILES",
)
