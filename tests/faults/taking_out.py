"""Take code out of a function, wherever it stands in its file, however it is laid out."""

import ast
import io
import tokenize
from collections.abc import Iterator

BESIDE = {  # what has no meaning where a function is read as a sequence of tokens
    tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def without(source: str, qualified: str, protected: str, bare: str) -> str:
    """Return a module's source with `bare` in the place of `protected` in one of its functions.

    `protected` may be any run of tokens that the function has once; lines and indentation do not
    matter. Raises LookupError where there is no such function, or not one such place in it.
    """
    first, last = _lines_of(qualified, ast.parse(source))
    tokens = [each for each in _tokens(source) if first <= each.start[0] <= last]
    wanted = [each.string for each in _tokens(protected.strip())]
    strings = [each.string for each in tokens]
    starts = range(len(strings) - len(wanted) + 1)
    found = [at for at in starts if strings[at : at + len(wanted)] == wanted]
    if not wanted or len(found) != 1:
        raise LookupError(f"{qualified} has {protected!r} {len(found)} times, not once")
    begin = _offset(source, tokens[found[0]].start)
    end = _offset(source, tokens[found[0] + len(wanted) - 1].end)
    return source[:begin] + (bare.strip() or "pass") + source[end:]


def _lines_of(qualified: str, module: ast.Module) -> tuple[int, int]:
    """Return the first and the last line of a function, of a class by `Class.function`."""
    node: ast.AST = module
    for name in qualified.split("."):
        inside = [each for each in ast.walk(node) if getattr(each, "name", None) == name]
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((each for each in inside if isinstance(each, kinds)), None)
        if found is None:
            raise LookupError(f"there is no {qualified}")
        node = found
    return found.lineno, found.end_lineno or found.lineno


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a module, or as many as a piece of one has."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    try:
        yield from (each for each in tokens if each.type not in BESIDE)
    except (tokenize.TokenError, IndentationError):
        return  # the piece ends within brackets or blocks that it does not close


def _offset(source: str, place: tuple[int, int]) -> int:
    line, column = place
    return sum(len(each) for each in source.splitlines(keepends=True)[: line - 1]) + column
