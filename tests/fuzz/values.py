"""What a hostile client puts where a value is expected."""

import json
import struct
from base64 import urlsafe_b64encode


def cursor(*parts):
    return urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


NUMBERS = [
    "-1", "0", "1e999", "-1e999", "nan", "inf", "1" * 19, "9" * 5000, "0" * 5000 + "1",
    "00000000019999999999999999999", "9223372036854775808", "-9223372036854775809", "1_000", "٣",
    "0x10", "1.5", " 1", "+1", "--1",
]  # fmt: skip
DATES = [
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z",
    "0000-00-00", "10000-01-01", "2026-02-30", "2026-01-01T00:00:00", "1e10", "-1",
]  # fmt: skip
TEXTS = [
    "", " ", "\x00", "a\x00b", "\ud800".encode("utf-8", "surrogatepass").decode("latin1"),
    "\u202egnp.exe", "\x1b[2J", "\r\nSet-Cookie: a=b", "'; DROP TABLE x; --", "<script>x</script>",
    "{{7*7}}", "${x}", "../../etc/passwd", "%00", "%ff", "\ufffe\uffff", "😀" * 2000, "x" * 100_000,
    "a" * 256, "=1+1", "\\", '"', "[]", "{}", "null", "true", "op_none", "ds_none", "study_none",
]  # fmt: skip
NESTED = ["[" * 10_000, "[" * 100_000, '{"a":' * 60_000, "[" * 40 + "]" * 40, '{"\\u0000": 1}',
          '["\\ud800"]', "[1e999]", '{"a": NaN}', "[" + "1," * 30_000 + "1]"]  # fmt: skip
CURSORS = [
    cursor(ordering, backwards, value, row_id)
    for ordering in ("-created_at", "created_at", "name", "")
    for backwards in (False, True)
    for value in [*DATES, "a\x00b", None, 1, [], {}]
    for row_id in ("x", "a\x00b", None, 10**30, [])
]
LIMITS = [each for each in NUMBERS if each.isdigit()]
BY_NAME = {"cursor": CURSORS, "top": CURSORS, "limit": LIMITS * 4, "days": LIMITS * 4}
WITH_NUL = ["\x00", "a\x00b", "op_\x00"]
STRINGS = [*NUMBERS, *DATES, *TEXTS, *NESTED, *CURSORS[::7]]
VALUES = [
    *STRINGS[:60], None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**300, 1.5,
    -0.0, 1e308, [], {}, [[]], [None], {"": ""}, {"a": {"b": {"c": []}}}, ["x"] * 1000,
    {str(number): number for number in range(1000)}, [[[[[[[[[[1]]]]]]]]]],
]  # fmt: skip


def directory_of(version=20, num_entries=1, comment=b""):
    """A zip that is a central directory only."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, version, *[0] * 7, 1, *[0] * 6) + b"a"
    size = len(entry) * num_entries
    end = (0, 0, num_entries, num_entries, size, 0, len(comment))
    return entry * num_entries + struct.pack("<4s4H2LH", b"PK\x05\x06", *end) + comment


FILES = [
    b"", b"\x00" * 100, b"a,b\n1,2\n", b"\xff\xfe\x00\xd8", b"PK\x03\x04", b"PAR1", b"\x80\x02.",
    directory_of(), directory_of(version=99), directory_of(num_entries=60_000)[:-1],
    directory_of(comment=b"PK\x05\x06" * 5000), b"PK\x05\x06" + b"\xff" * 18,
    b"PK\x06\x06" + b"\xff" * 52 + b"PK\x06\x07" + b"\x00" * 16 + b"PK\x05\x06" + b"\xff" * 18,
]  # fmt: skip
