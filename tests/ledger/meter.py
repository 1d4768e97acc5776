"""A kind with a ledger of its own: each step records a reading before it adds it up."""

import time

from pydantic import Field

from trainops.kind import Kind
from trainops.runtime.config import OperationConfig
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.ledger_fields import LedgerFields, choice, integer, number, text
from trainops.runtime.position import Position

HERE = "tests.ledger.meter"
SUMMARY, ALSO_READ, BEST = ("read",), (), ()
FIELDS = LedgerFields(
    fields=(
        number("value"),
        choice("unit", ("kWh", "m3")),
        text("place", 20),
        integer("series", is_nullable=True),
    )
)


class MeterConfig(OperationConfig):
    steps: int = Field(8, ge=1)
    seconds: float = Field(0.0, ge=0)


def position(state, step):
    return Position({"read": step}, f"reading {step}")


class MeterJob:
    unit = "reading"

    def __init__(self, config, inputs, ledger=None):
        self.config, self.total_steps = config, config.steps
        self.ledger = ledger or MemoryLedger()
        self.step, self.total = 0, 0.0

    @property
    def place(self):
        return f"reading {self.step} of {self.total_steps}"

    def advance(self):
        time.sleep(self.config.seconds)
        reading = entry(self.step + 1)
        self.ledger.append([reading])
        self.total += reading.values["value"]
        self.step += 1
        return {}

    def state_dict(self):
        return {"state": {"read": self.step, "total": self.total}}

    def load_state_dict(self, state):
        self.step, self.total = state["state"]["read"], state["state"]["total"]

    def result(self):
        return {"total": self.total, "entries": len(self.ledger.entries())}


def entry(step):
    values = {"value": step / 4, "unit": "kWh", "place": "cellar \N{GREEK SMALL LETTER BETA}"}
    return Entry(identity=f"reading {step}", step=step, values=values | {"series": None})


KIND = Kind(
    name="meter",
    label="Meter",
    description="Adds up readings",
    unit="reading",
    config=f"{HERE}:MeterConfig",
    job=f"{HERE}:MeterJob",
    positions=HERE,
    ports=frozenset({"ledger"}),
    ledger=f"{HERE}:FIELDS",
)
