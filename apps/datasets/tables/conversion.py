"""Text to values: the one place that knows what counts as a number, a date, or missing.

Columns are pyarrow arrays of strings. An empty field is missing everywhere; the words below are
missing in columns of numbers, booleans and dates only, since they may be real categories elsewhere
(NA is Namibia).
"""

import pyarrow as pa
import pyarrow.compute as pc

MISSING_WORDS = (
    "", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "NULL", "Null", "null", "None", "none",
    "#N/A", "?", "-",
)  # fmt: skip
INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
CODE = r"^\s*[+-]?0[0-9xX]"  # 007, 0x1F: a name made of digits, not a quantity


def arrow_type(kind: str, *, zoned: bool = False) -> pa.DataType:
    """The type that a kind has in the normalised file."""
    match kind:
        case "integer":
            return pa.int64()
        case "number":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case "datetime":
            return pa.timestamp("us", tz="UTC" if zoned else None)
        case _:
            return pa.string()


def cleaned(column: pa.Array) -> pa.Array:
    """Trimmed, with the words that mean missing as nulls."""
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING_WORDS))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)


def converted(column: pa.Array, kind: str, *, zoned: bool = False) -> pa.Array | None:
    """The values of a cleaned column, or None if one of them is not of this kind."""
    if kind in ("category", "text"):
        return column
    if kind == "boolean":
        return _booleans(column)
    if kind == "integer":
        column = pc.replace_substring_regex(column, r"^\+", "")
        if pc.any(pc.match_substring_regex(column, r"^-?0[xX]")).as_py():
            return None  # pyarrow would read hexadecimal
    try:
        return pc.cast(column, arrow_type(kind, zoned=zoned))
    except pa.ArrowInvalid:
        return None


def looks_like_codes(column: pa.Array) -> bool:
    """Whether digits stand there that a conversion to numbers would change (leading zeros)."""
    return bool(pc.any(pc.match_substring_regex(column, CODE)).as_py())


def misfits(column: pa.Array, kind: str, *, zoned: bool = False) -> list[int]:
    """The positions in a cleaned column whose values are not of `kind`."""
    if kind in ("number", "integer"):
        fits = pc.match_substring_regex(column, NUMBER if kind == "number" else INTEGER)
        wrong = pc.fill_null(pc.invert(fits), False)
        if found := pc.indices_nonzero(wrong).to_pylist():
            return list(found)
    return [
        position
        for position, value in enumerate(column.to_pylist())
        if value is not None and converted(pa.array([value]), kind, zoned=zoned) is None
    ]


def _booleans(column: pa.Array) -> pa.Array | None:
    lowered = pc.utf8_lower(column)
    true = pc.equal(lowered, "true")
    known = pc.or_(true, pc.equal(lowered, "false"))
    if not pc.all(known, min_count=0).as_py():
        return None
    return true
