"""Text of a known encoding, as UTF-8.

The rule: a byte order mark decides. Without one the text is UTF-8, unless the person named another
encoding. Nothing is guessed: bytes that happen to decode as Windows-1252 would become wrong letters
without a word.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path

from apps.datasets.tables.options import ENCODINGS
from apps.datasets.tables.refusals import TableRefused

CHUNK = 1024**2
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def to_utf8(source: Path, target: Path, named: str = "") -> str:
    """Write `source` to `target` as UTF-8 without a byte order mark, its last line ended.

    Returns the encoding that it had.
    Raises TableRefused with the offset of the first byte that cannot be read.
    """
    encoding, last = _encoding(source, named), ""
    with target.open("w", encoding="utf-8", newline="") as file:
        for text in _decoded(source, encoding):
            file.write(text)
            last = text[-1:] or last
        if last not in ("\n", "\r"):
            file.write("\n")
    return encoding


def _encoding(source: Path, named: str) -> str:
    if named and named not in ENCODINGS:
        raise TableRefused(
            "UNKNOWN_ENCODING",
            f"{named!r} is not a supported encoding; allowed: {', '.join(ENCODINGS)}.",
            field="encoding",
            given=named,
            allowed=list(ENCODINGS),
        )
    with source.open("rb") as file:
        head = file.read(4)
    mark = next((name for mark, name in MARKS.items() if head.startswith(mark)), "")
    if mark == "utf-32":
        raise TableRefused(
            "WRONG_ENCODING", "The file is UTF-32.", given=mark, allowed=list(ENCODINGS)
        )
    if mark and named and not mark.startswith(named):
        raise TableRefused(
            "WRONG_ENCODING",
            f"The file begins with the byte order mark of {mark}, but {named} was given.",
            field="encoding",
            given=named,
            allowed=[mark.removesuffix("-sig")],
        )
    return mark or (_byte_order(source) if named == "utf-16" else named) or "utf-8"


def _byte_order(source: Path) -> str:
    """Return the UTF-16 of a file without a mark: its delimiters and line ends hold a zero byte."""
    with source.open("rb") as file:
        head = file.read(CHUNK)
    little, big = head[1::2].count(0), head[::2].count(0)
    if little == big:
        raise TableRefused(
            "WRONG_ENCODING",
            "The file has no byte order mark, and its byte order cannot be detected. "
            "Save it as UTF-16 with a byte order mark, or as UTF-8.",
            field="encoding",
            given="utf-16",
            allowed=list(ENCODINGS),
        )
    return "utf-16-le" if little > big else "utf-16-be"


def _decoded(source: Path, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    offset, line = 0, 1
    with source.open("rb") as file:
        while True:
            chunk = file.read(CHUNK)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise _undecodable(error, encoding, offset - pending, line) from None
            if "\x00" in text:
                raise _binary(offset + max(chunk.find(b"\x00"), 0), encoding)
            if not chunk:
                return
            yield text
            offset += len(chunk)
            line += text.count("\n")


def _undecodable(error: UnicodeDecodeError, encoding: str, base: int, line: int) -> TableRefused:
    at = base + error.start
    line += bytes(error.object[: error.start]).count(b"\n")
    byte = f"0x{error.object[error.start]:02X}"
    hint = " If Excel on Windows wrote the file, set the encoding to cp1252."
    return TableRefused(
        "WRONG_ENCODING",
        f"The byte {byte} at offset {at} (line {line}) is not valid {encoding}."
        + (hint if encoding.startswith("utf-8") else ""),
        given=f"{byte} at offset {at}",
        offset=at,
        line=line,
        allowed=list(ENCODINGS),
    )


def _binary(offset: int, encoding: str) -> TableRefused:
    hint = " If the file is UTF-16 without a byte order mark, set the encoding to utf-16."
    return TableRefused(
        "BINARY_FILE",
        f"NUL byte at offset {offset}: the file is not text."
        + (hint if encoding.startswith("utf-8") else ""),
        offset=offset,
        allowed="CSV, Parquet, NPZ or text",
    )
