"""The query language of lists: from text to terms, each with its place in the text. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainops.errors import DomainError

MAX_LENGTH, MAX_TERMS = 1000, 30
COMPARISONS = ("<=", ">=", "!=", "=", "<", ">")
NAME = r"[^\W\d][\w./-]*"
QUOTED = r'"[^"\x00-\x1f]+"'  # any name
VALUE = rf"(?:best\({NAME}\)|{NAME})"  # the name of a value, or the best one of a metric
_COMPARISON = "|".join(COMPARISONS)
_TERM = re.compile(
    rf"""(?P<minus>-?)
    (?:(?P<name>{VALUE})(?P<operator>:|{_COMPARISON})|(?P<quoted>{QUOTED})(?P<after>{_COMPARISON}))?
    (?P<value>(?:"[^"]*"|[^\s"])*)""",
    re.VERBOSE,
)
_PART = re.compile(r'(?:"[^"]*"|[^,"])+')
_QUOTED = re.compile(r'"[^"]*"')
_SIGN = re.compile(_COMPARISON)
SIGNS = " ".join(COMPARISONS)


class QueryError(DomainError):
    """A query that cannot be understood: where, and what is allowed there."""

    def __init__(self, term: str, offset: int, problem: str) -> None:
        place = f"{term[:60]!r} (character {offset + 1})"
        super().__init__(
            "INVALID_QUERY",
            f"Query: {place}: {problem}",
            {"fields": {"q": f"{place}: {problem}"}, "offset": offset, "term": term[:60]},
        )
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Term:
    """One condition of a query; free text has no name and no operator."""

    text: str  # as typed
    offset: int  # characters before it
    is_negated: bool
    name: str  # without quotation marks
    operator: str  # ":" or one of COMPARISONS
    value: str

    @property
    def values(self) -> list[str]:
        """The alternatives, which commas outside quotation marks separate."""
        parts = (part.replace('"', "") for part in _PART.findall(self.value))
        return [part.strip() for part in parts if part.strip()]

    @property
    def plain(self) -> str:
        """The value without quotation marks."""
        return self.value.replace('"', "")

    def error(self, problem: str) -> QueryError:
        return QueryError(self.text, self.offset, problem)


def parse(text: str) -> list[Term]:
    """Return the terms of a query. Raises QueryError."""
    if len(text) > MAX_LENGTH:
        raise QueryError(text, MAX_LENGTH, f"has {len(text)} characters; at most {MAX_LENGTH}")
    terms: list[Term] = []
    for start in starts(text):
        found = _TERM.match(text, start)
        if found is None:
            continue
        if found.end() < len(text) and text[found.end()] == '"':
            raise QueryError(text[start:], start, "the quotation mark is not closed")
        terms.append(_term(found))
    _refuse_spaces_around_signs(terms)
    if len(terms) > MAX_TERMS:
        extra = terms[MAX_TERMS]
        raise extra.error(f"the query has {len(terms)} terms; at most {MAX_TERMS}")
    return terms


def quoted(name: str) -> str:
    """Return the name of a value as a query has it: in quotation marks where it needs them."""
    return name if re.fullmatch(VALUE, name) else f'"{name}"'


def quoted_value(text: str) -> str:
    """Return a text as the value of a term: in quotation marks where it needs them."""
    return text if text and not set(text) & set(" ,<>=\t\n\r\v\f\u00a0") else f'"{text}"'


def with_value(query: str, name: str, old: str, new: str) -> str:
    """Return the query with the value `new` for `old` in its terms `name:`. Raises QueryError."""

    def replaced(part: re.Match[str]) -> str:
        is_old = part.group().replace('"', "").strip() == old
        return quoted_value(new) if is_old else part.group()

    for term in reversed(parse(query)):
        if term.name.lower() == name and term.operator == ":":
            end = term.offset + len(term.text)
            start = end - len(term.value)
            query = query[:start] + _PART.sub(replaced, term.value) + query[end:]
    return query


def unquoted(name: str) -> str:
    """Return the name of a value without quotation marks."""
    return name.strip('"')


def starts(text: str) -> list[int]:
    """Return where terms begin: after white space outside quotation marks."""
    starts, is_quoted, is_between = [], False, True
    for index, character in enumerate(text):
        if is_between and not character.isspace():
            starts.append(index)
        is_quoted ^= character == '"'
        is_between = character.isspace() and not is_quoted
    return starts


def _term(found: re.Match[str]) -> Term:
    term = Term(
        text=found.group(),
        offset=found.start(),
        is_negated=bool(found["minus"]) and found.group() != "-",
        name=found["name"] or unquoted(found["quoted"] or ""),
        operator=found["operator"] or found["after"] or "",
        value=found["value"] or ("-" if found.group() == "-" else ""),
    )
    if term.name and not (term.values if term.operator == ":" else term.plain.strip()):
        raise term.error(f"a value is missing after {term.operator!r}")
    if term.operator in COMPARISONS and term.value.startswith(("<", ">", "=")):
        raise term.error(f"got {term.operator + term.value[0]!r}; allowed: {SIGNS}")
    if not term.name and _is_like_a_comparison(term.value):
        raise term.error(
            "not a comparison; put the name before the sign, or the whole text, in quotation marks"
        )
    return term


def _refuse_spaces_around_signs(terms: Sequence[Term]) -> None:
    for index, term in enumerate(terms[1:], start=1):
        before = terms[index - 1]
        sign = None if term.name else _SIGN.match(term.value)
        if sign and not before.name and re.fullmatch(VALUE, before.value):
            is_alone = sign.end() == len(term.value)
            after = terms[index + 1].text if is_alone and index + 1 < len(terms) else ""
            meant = f"{before.value}{term.value}{after}"[:60]
            raise term.error(f"no spaces around a sign: {meant}; or the text in quotation marks")


def _is_like_a_comparison(text: str) -> bool:
    """Whether free text has a sign of a comparison after its first character, not quoted."""
    return any(sign in _QUOTED.sub('"', text)[1:] for sign in "<>=≤≥≠")
