import importlib

import pytest
import typer

from trainops.cli.app import MODULES
from trainops.cli.tables import Text, lines, width


def test_columns_stand_below_each_other_whatever_their_letters():
    shown = list(lines(["A", "B"], [["数数", "1"], ["é", "2"], ["e\u0301x", "3"]]))
    assert shown == ["A     B", "数数  1", "é     2", "e\u0301x    3"]


@pytest.mark.parametrize("columns", [12, 18, 24])
def test_the_elastic_column_is_cut_or_wrapped(columns):
    words = "数 one two three four five"
    (_, cut) = lines(["A", "B"], [[Text(words), "x"]], columns=columns, elastic="A")
    assert width(cut) <= columns and "…" in cut and cut.endswith("x")
    _, *wrapped = lines(["A", "B"], [[Text(words, wraps=True), ""]], columns=columns, elastic="A")
    assert " ".join(line.strip() for line in wrapped) == words
    assert all(width(line) <= columns for line in wrapped)


def test_styles_do_not_change_widths():
    rows = [[Text("FAILED", "red"), "x"], [Text("OK"), "y"]]
    plain = list(lines(["A", "B"], rows))
    colored = list(lines(["A", "B"], rows, is_colored=True))
    assert colored[1] == "\x1b[31mFAILED\x1b[0m  x" and colored[2].endswith(plain[2][2:])


@pytest.mark.parametrize("module", MODULES)
def test_the_table_of_modules_names_their_commands(module):
    app = typer.Typer()
    importlib.import_module(f"trainops.cli.{module}").register(app)
    names = [each.name for each in (*app.registered_commands, *app.registered_groups)]
    assert tuple(names) == MODULES[module]
