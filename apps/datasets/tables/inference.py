"""Which type each column of a CSV has, found by looking at every value once."""

from dataclasses import dataclass, field

import pyarrow as pa

from apps.datasets.tables.conversion import cleaned, converted, looks_like_codes, misfits
from apps.datasets.tables.refusals import TableRefused, at_rows

STRING = "string"  # category or text, which is decided by the distinct values
MOSTLY = 0.9  # a column with so many numbers was probably meant to hold numbers only
REMEMBERED = 10
ZONED, LOCAL = "datetime with zone", "datetime without zone"


@dataclass(slots=True)
class ColumnInference:
    """Narrows down one column's type, batch by batch."""

    name: str
    possible: list[str] = field(
        default_factory=lambda: ["integer", "number", "boolean", LOCAL, ZONED]
    )
    num_values: int = 0
    num_not_numbers: int = 0
    not_numbers: list[tuple[int, str]] = field(default_factory=list)  # (row, value)
    is_code: bool = False

    def look(self, column: pa.Array, first_row: int) -> None:
        """`column` is an array of strings; `first_row` the row number of its first value."""
        values = cleaned(column)
        num_values = len(values) - values.null_count
        if not num_values:
            return
        self.num_values += num_values
        had_numbers = "number" in self.possible
        self._narrow(values)
        if self.is_code or "number" in self.possible:
            return
        if had_numbers or self._mostly_numbers():
            self._remember(values, first_row)

    @property
    def kind(self) -> str:
        if not self.possible or not self.num_values:
            return STRING
        return "datetime" if self.possible[0] in (LOCAL, ZONED) else self.possible[0]

    @property
    def zoned(self) -> bool:
        return self.possible[:1] == [ZONED]

    @property
    def note(self) -> str:
        """What a person should know about the choice; empty where nothing."""
        if self.is_code:
            return "Numbers with leading zeros are kept as categories, as written."
        if self.kind == STRING and self.not_numbers and self._mostly_numbers():
            return (
                f"Not numeric, because of {self.num_not_numbers} of "
                f"{self.num_values} values: {at_rows(self.not_numbers, self.num_not_numbers)}."
            )
        return ""

    def _narrow(self, values: pa.Array) -> None:
        if self.possible[:1] in (["integer"], ["number"]) and looks_like_codes(values):
            self.possible, self.is_code = [], True
        while self.possible:
            kind, zoned = self.possible[0], self.possible[0] == ZONED
            if converted(values, _plain(kind), zoned=zoned) is not None:
                # Whatever reads as a number is no date, and the other way round.
                keep = ("integer", "number") if kind == "integer" else (kind,)
                self.possible = [kind for kind in self.possible if kind in keep]
                return
            self.possible.pop(0)

    def _mostly_numbers(self) -> bool:
        return not self.is_code and self.num_not_numbers <= (1 - MOSTLY) * self.num_values

    def _remember(self, values: pa.Array, first_row: int) -> None:
        wrong = misfits(values, "number")
        self.num_not_numbers += len(wrong)
        room = REMEMBERED - len(self.not_numbers)
        self.not_numbers += [(first_row + i, values[i].as_py()[:60]) for i in wrong[:room]]


@dataclass(slots=True)
class DeclaredType:
    """Checks one column against the type that a person declared."""

    name: str
    kind: str
    zoned: bool | None = None  # of dates: not known before the first value
    num_wrong: int = 0
    wrong: list[tuple[int, str]] = field(default_factory=list)
    note: str = ""

    def look(self, column: pa.Array, first_row: int) -> None:
        values = cleaned(column)
        if self.kind in ("category", "text") or values.null_count == len(values):
            return
        if self._fits(values):
            return
        positions = misfits(values, self.kind, zoned=bool(self.zoned))
        self.num_wrong += len(positions)
        room = REMEMBERED - len(self.wrong)
        self.wrong += [(first_row + i, values[i].as_py()[:60]) for i in positions[:room]]

    def _fits(self, values: pa.Array) -> bool:
        if self.kind == "datetime" and self.zoned is None:
            first = values.drop_null()[:1]  # it decides for all
            self.zoned = converted(first, self.kind, zoned=True) is not None
        return converted(values, self.kind, zoned=bool(self.zoned)) is not None

    def check(self) -> None:
        """Raises TableRefused after the last batch, with the first rows and how many there are."""
        if self.num_wrong:
            raise TableRefused(
                "WRONG_TYPE",
                f"The column {self.name!r} was declared {self.kind}, but {self.num_wrong} values "
                f"are not: {at_rows(self.wrong, self.num_wrong)} (the header is row 1).",
                field=f"columns.{self.name}",
                given=[{"row": row, "value": value} for row, value in self.wrong],
                num_wrong=self.num_wrong,
                allowed=self.kind,
            )


def _plain(kind: str) -> str:
    return "datetime" if kind in (LOCAL, ZONED) else kind
