"""Operations compared on the command line."""

import csv

import pytest

from tests.api.saved import saved
from tests.api.test_comparisons import made, measured
from trainops.client.problems import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(ana):
    one = made(ana, "one", learning_rate=0.1, note=None)
    two = made(ana, "two", learning_rate=0.01)
    measured(one, "val_loss", {10: 0.5, 20: 0.25})
    measured(two, "val_loss", {10: 1.0, 20: 0.75})
    saved(one, environment={"torch": "2.13.0"})
    return one, two


def lines(ran):
    return {tuple(line.split()[:2]): line.split()[2:] for line in ran.stdout.splitlines() if line}


def test_differences_and_values_are_printed(cli, pair):
    one, two = pair
    ran = cli("compare", one.pk[-6:], two.pk)
    found = lines(ran)
    assert found["DIFFERENCE", "FIELD"] == [one.pk[-6:], two.pk[-6:]]
    assert found["config", "learning_rate"] == ["0.1", "0.01"]
    assert found["config", "note"] == ["null", "-"]
    assert found["val_loss", "final"] == ["lower", "0.25", "*", "0.75", "(+0.5)"]
    assert ("config", "seed") not in found
    assert f"{two.pk}: It has no checkpoint" in ran.stderr
    assert f"/compare/?ids={one.pk},{two.pk}" in ran.stderr


def test_the_baseline_is_an_option_and_json_is_the_data_of_the_api(cli, pair):
    one, two = pair
    ran = cli("compare", one.pk, two.pk, "--baseline", two.pk[-6:])
    assert lines(ran)["val_loss", "best"] == ["lower", "0.25", "(-0.5)", "*", "0.75"]
    found = cli("compare", one.pk, two.pk, "--baseline", two.pk, "-o", "json").json
    assert found["baseline"] == two.pk
    assert [each["name"] for each in found["curves"]] == ["val_loss"]


def test_csv_has_a_row_for_each_difference_and_value_and_quiet_the_ids(cli, pair):
    one, two = pair
    ran = cli("compare", one.pk, two.pk, "-o", "csv")
    rows = {
        (row["part"], row["name"], row["what"]): row
        for row in csv.DictReader(ran.stdout.splitlines())
    }
    assert [rows["config", "learning_rate", ""][each.pk] for each in pair] == ["0.1", "0.01"]
    assert [rows["config", "note", ""][each.pk] for each in pair] == ["null", ""]
    assert [rows["metric", "val_loss", "final"][each.pk] for each in pair] == ["0.25", "0.75"]
    assert cli("compare", one.pk, two.pk, "-q").stdout.split() == [one.pk, two.pk]


def test_equal_operations_without_metrics(cli, ana):
    ran = cli("compare", made(ana, "one").pk, made(ana, "two").pk)
    assert "No difference in config" in ran.stdout and "No metric has been" in ran.stdout


def test_wrong_ids_are_refused(cli, pair):
    one, _ = pair
    for arguments, code, says in (
        ((one.pk,), ExitCode.USAGE, "got 1 ids; allowed: 2 to 12"),
        ((*[one.pk] * 13,), ExitCode.USAGE, "got 13 ids; allowed: 2 to 12"),
        ((one.pk, one.pk), ExitCode.USAGE, "2 times; allowed: 2 to 12 operations"),
        ((one.pk, "zzz"), ExitCode.NOT_FOUND, "No operation matches 'zzz'"),
        ((one.pk, "op_training_20260101_000000_abcdef"), ExitCode.NOT_FOUND, "no operation"),
    ):
        ran = cli("compare", *arguments)
        assert ran.exit_code == code and says in ran.stderr, ran.stderr
