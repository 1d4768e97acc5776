"""Texts for readers use plain technical English; phrases of this table must not come back.

CONTRIBUTING.md (section "Words") states the rules. Documents, templates, help texts, docstrings and
test names must pass.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from itertools import islice
from pathlib import Path
from tokenize import COMMENT, generate_tokens
from typing import Any, NamedTuple

import click
import pytest
from django.apps import apps
from typer.main import get_command

from trainops.cli.app import build
from trainops.kind import KINDS
from trainops.recipes import recipes
from trainops.thresholds import with_kinds

ROOT = Path(__file__).resolve().parents[1]
TAGS = r"{#.*?#}|{%.*?%}|{{.*?}}|<(script|style)\b.*?</\1>"


class Phrase(NamedTuple):
    pattern: str
    instead: str
    example: str  # must be detected


PHRASES = [
    Phrase(r"\bso many\b", "N, or the unit: 'epochs between saves'", "after so many steps"),
    Phrase(r"\bof the newest\b", "the latest N", "returns of the newest 500 trades"),
    Phrase(r"\bnursery\b", "forkserver", "the nursery forks it"),
    Phrase(r"\b(the|this|our|its) house\b", "the platform, the worker", "told by the house"),
    Phrase(r"\b(who|whom|no|some|any|every)(ever|body)\b", "the noun", "whoever asks again"),
    Phrase(r"\bwho waits?\b", "coordinators", "who waits for others leaves"),
    Phrase(r"\bg(ive|ives|iven|iving|ave) out\b", "export", "a file that is given out"),
    Phrase(r"\bt(ake|akes|aken|aking|ook) in (a|an|the|its|files?)\b", "import", "take in a file"),
    Phrase(r"\bgo(es|ing)? on (at|by|from|in|over|to|when|where|with)\b", "continue",
           "it goes on from a checkpoint"),
    Phrase(r"\bof one's own\b", "your own", "a recipe of one's own"),
    Phrase(r"\bthe whole one\b", "the parent operation", "ask that of the whole one"),
    Phrase(r"\b(is|are|was|were|be|been) told\b(?! apart)", "receives", "the child is told"),
    Phrase(r"\bin (its|the|their) midst\b", "within, in the middle of", "saved in its midst"),
    Phrase(r"\bfor ever\b", "without limit, permanently", "kept for ever"),
    Phrase(r"\bspeaks? (for|like|with)\b", "acts for, is compatible with", "what speaks like S3"),
    Phrase(r"\bto the bit\b(?!-)", "exactly, bit for bit", "the same to the bit"),
    Phrase(r"\bthe machinery\b", "the platform", "the machinery around it failed"),
    Phrase(r"\basked for by\b", "requested by", "asked for by admin"),
    Phrase(r"\bof the whole (?=reaches|does|goes)|\bpage of the whole\b", "the parent operation",
           "judged on the page of the whole"),
    Phrase(r"\bit wrote nothing\b|\bnot understood\b|\bsure\?", "No output, Bad request, the verb",
           "It wrote nothing."),
    Phrase(r"\bhouses?keepers?\b|\bheirs?\b", "worker runtime, next attempt", "its heir adopts it"),
]  # fmt: skip
OF_SOURCE = [
    Phrase(r"\bdoors?\b", "endpoint, entry point", "the doors of the registry"),
    Phrase(r"\bnews\b", "updates", "waits for news"),
]
OF_CODE = [each for each in PHRASES if each.instead != "the latest N"] + OF_SOURCE
OF_NAMES = [
    Phrase(r"\btold\b", "reported, distinguished, asked to", "a bad value is told"),
    Phrase(r"\bgoes on\b", "continues", "it goes on"),
]
OF_HELP = [
    Phrase(r"^Of ", "the value, then the condition: 'Momentum (sgd only).'", "Of sgd"),
    Phrase(r"^What ", "the noun: 'Optimizer class.'", "What moves the weights"),
    Phrase(r"^For people\b", "Display name", "For people."),
]


def problems(text: str, phrases: Iterable[Phrase]) -> list[str]:
    """Return each phrase of the table in the text, and what to write instead."""
    plain = re.sub(r"\s+", " ", text).strip()
    return [
        f"...{plain[max(found.start() - 30, 0) : found.end() + 30]}...: {each.instead}"
        for each in phrases
        for found in re.finditer(each.pattern, plain, re.IGNORECASE)
    ]


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def prose(path: Path) -> str:
    """Return a document without code; CONTRIBUTING without the glossary, which quotes phrases."""
    text = path.read_text()
    if path.name == "CONTRIBUTING.md":
        text = text.partition("\n## Words\n")[0]
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


def visible(template: str) -> str:
    """Return the text of a template, and the values of attributes that are read aloud or shown."""
    text = re.sub(TAGS, " ", template, flags=re.DOTALL)
    shown = re.findall(r'\b(?:aria-label|title|placeholder|alt)="([^"]*)"', text)
    return " ".join([re.sub(r"<[^>]*>", " ", text), *shown])


def templates() -> Iterator[tuple[str, str]]:
    for root in ("templates", "trainops", "apps", "examples"):
        for path in sorted((ROOT / root).rglob("*.html")):
            if not path.is_relative_to(ROOT / "trainops" / "templates"):  # a link to templates
                yield str(path.relative_to(ROOT)), visible(path.read_text())


def commands() -> Iterator[tuple[str, str]]:
    def walk(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
        yield name, command.help or ""
        for parameter in command.params:
            yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
        for inner, each in getattr(command, "commands", {}).items():
            yield from walk(each, f"{name} {inner}")

    return walk(get_command(build()), "trainops")


def descriptions(schema: Any, name: str) -> Iterator[tuple[str, str]]:
    """Return the descriptions in a JSON Schema; those of classes are docstrings of the code."""
    if isinstance(schema, Mapping):
        for field, inner in schema.get("properties", {}).items():
            yield f"{name}.{field}", inner.get("description", "")
        for each, inner in schema.get("$defs", {}).items():
            yield from descriptions(inner, f"{name}.{each}")


def configs() -> Iterator[tuple[str, str]]:
    for kind in KINDS.values():
        yield kind.name, kind.description
        yield from descriptions(kind.json_schema(), kind.name)
    for recipe in recipes().values():
        if recipe.parameters.startswith("trainops."):
            yield recipe.name, recipe.description
            yield from descriptions(recipe.json_schema(), recipe.name)
    yield from descriptions(with_kinds().model_json_schema(), "thresholds")


def models() -> Iterator[tuple[str, str]]:
    for model in apps.get_models():
        if model.__module__.startswith(("apps.", "trainops.")):
            for field in model._meta.get_fields():
                yield f"{model.__name__}.{field.name}", str(getattr(field, "help_text", ""))


def sources(*roots: str) -> Iterator[tuple[Path, str]]:
    for root in roots:
        for path in sorted((ROOT / root).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def docstrings() -> Iterator[tuple[str, str]]:
    for path, source in sources("apps", "trainops", "examples"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{getattr(node, 'lineno', 1)}", ast.get_docstring(node) or ""


def comments() -> Iterator[tuple[str, str]]:
    for path, source in sources("apps", "trainops", "examples"):
        for token in generate_tokens(StringIO(source).readline):
            if token.type == COMMENT:
                yield f"{path}:{token.start[0]}", token.string


def names_of_tests() -> Iterator[tuple[str, str]]:
    for path, source in sources("tests", "apps", "trainops", "examples"):
        for name in re.findall(r"def (test_\w+)", source):
            yield f"{path}::{name}", name.replace("_", " ")


GROUPS = {
    "templates": (templates, PHRASES),
    "commands": (commands, PHRASES + OF_HELP),
    "configs": (configs, PHRASES + OF_HELP),
    "models": (models, PHRASES + OF_HELP),
    "docstrings": (docstrings, OF_CODE),
    "comments": (comments, OF_SOURCE),
    "test names": (names_of_tests, OF_CODE + OF_NAMES),
}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_has_none_of_the_phrases(path):
    assert problems(prose(path), PHRASES) == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_texts_has_none_of_the_phrases(group):
    texts, phrases = GROUPS[group]
    found = {name: problems(text, phrases) for name, text in texts()}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_texts(group):
    texts = (text for _, text in GROUPS[group][0]() if text.strip())
    assert len(list(islice(texts, 4))) == 4


@pytest.mark.parametrize(
    "phrase", [*PHRASES, *OF_SOURCE, *OF_HELP, *OF_NAMES], ids=lambda phrase: phrase.example
)
def test_each_phrase_is_detected(phrase):
    assert problems(phrase.example, [phrase])


def test_code_in_a_document_is_not_prose(tmp_path):
    (tmp_path / "page.md").write_text("Run `so many`.\n\n```sh\nso many\n```\n\n[x](so many)\n")
    assert problems(prose(tmp_path / "page.md"), PHRASES) == []


def test_a_template_is_checked_by_its_visible_text():
    template = '{# so many #}<a class="so many" title="nursery">{% so many %}for ever</a>'
    assert len(problems(visible(template), PHRASES)) == 2
