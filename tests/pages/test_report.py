"""A finished backtest's report: on its page, and as files."""

import json

import pytest

from apps.dashboard.formatting import number, share
from tests.backtest.market import bars_of, run, walk
from tests.pages import making
from trainops.kinds.backtest.web import report


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """What a real backtest reports."""
    directory = tmp_path_factory.mktemp("backtest")
    stopped = {"recipe": "sma_crossover", "parameters": {"stop_loss": 0.005}}
    return json.loads(json.dumps(run(walk(800), directory, **stopped).result()))


@pytest.fixture
def finished(ana, result):
    return making.operation(ana, "COMPLETED", name="walked", kind="backtest", result=result)


def path(operation, end=""):
    return f"/operations/{operation.pk}/{end}"


def downloaded(page, operation, form):
    answer = page.get(path(operation, f"report.{form}"))
    assert answer["Content-Disposition"] == (f'attachment; filename="{operation.pk}-report.{form}"')
    return answer.content.decode()


def test_the_page_shows_figures_months_distribution_and_trades(page, finished, result):
    text = page.get(path(finished)).content.decode()
    assert result["trades"] > 12
    for shown in (
        share(result["return"]), share(result["max_drawdown"]), number(result["sharpe"]),
        f"alpha {share(result['alpha'])}", f"beta {number(result['beta'])}",
        f"average {share(result['average_drawdown'])}", f"Kelly {share(result['kelly'])}",
        f"12 trades of {result['trades']}.", "Returns by month", "stop loss",
    ):  # fmt: skip
        assert shown in text, shown
    assert text.count("<rect") == len(result["trade_returns"]["counts"])
    newest = result["trade_list"][-1]
    assert report.moment(newest["entry_time"]) in text


def test_a_result_from_before_a_figure_existed_has_a_dash_for_it(page, ana, result):
    new = ("alpha", "beta", "average_drawdown", "kelly")
    older = {name: value for name, value in result.items() if name not in new}
    operation = making.operation(ana, "COMPLETED", name="older", kind="backtest", result=older)
    text = page.get(path(operation)).content.decode()
    for shown in ("alpha —", "beta —", "average —", "Kelly —"):
        assert shown in text, shown


def test_there_is_no_report_but_of_a_completed_backtest(page, ana):
    for operation in (
        making.operation(ana, "COMPLETED", name="trained", result={"final": {}}),
        making.operation(ana, "RUNNING", name="under way", kind="backtest"),
        making.operation(ana, "CANCELLED", name="stopped", kind="backtest", result=None),
    ):
        assert 'data-testid="report"' not in page.get(path(operation)).content.decode()
        assert page.get(path(operation, "report.json")).status_code == 404


def test_downloads_hold_what_the_page_shows(page, finished, result):
    assert json.loads(downloaded(page, finished, "json")) == result
    page_alone = downloaded(page, finished, "html")
    assert page_alone.count("<polyline") == 2 and "walked" in page_alone
    assert "src=" not in page_alone and "href=" not in page_alone, "it stands alone"


def test_tables_of_deleted_checkpoints_are_gone(page, finished):
    assert page.get(path(finished, "report.trades.csv")).status_code == 404


def test_an_unknown_form_is_refused_by_what_there_is(page, finished):
    assert page.get(path(finished, "report.pdf")).status_code == 404


def test_downloads_need_a_login(client, finished):
    assert client.get(path(finished, "report.json")).status_code == 302


def test_names_cannot_break_out_of_the_file(page, ana, result):
    evil = making.operation(
        ana, "COMPLETED", name="<script>alert(1)</script>", kind="backtest", result=result
    )
    for text in (page.get(path(evil)).content.decode(), downloaded(page, evil, "html")):
        assert "<script>alert" not in text


def test_a_backtest_without_trades_says_so(page, ana, tmp_path):
    flat = bars_of(*[(100, 100, 100, 100)] * 5)
    result = json.loads(json.dumps(run(flat, tmp_path, recipe="sma_crossover").result()))
    operation = making.operation(ana, "COMPLETED", name="flat", kind="backtest", result=result)
    assert page.get(path(operation)).content.decode().count("No closed trades") == 2
    assert "<polyline" in downloaded(page, operation, "html")


def test_months_are_coloured_by_how_much_they_returned():
    result = {
        "years": [{"period": "2012", "return": -0.06}],
        "months": [{"period": "2012-03", "return": 0.01}, {"period": "2012-04", "return": -0.03},
                   {"period": "2012-05", "return": None}, {"period": "2012-06", "return": 0.0}],
    }  # fmt: skip
    (line,) = report.years(result)
    assert [cell["heat"] for cell in line["months"]] == [
        "", "", "heat-up-1", "heat-down-2", *[""] * 8,
    ]  # fmt: skip
    assert line["whole"]["heat"] == "heat-down-3"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "—"), (0.1234, "12.3 %"), (-0.0041, "-0.41 %"), (4.6152, "462 %"), (0, "0.00 %"),
     (12.5, "1,250 %")],
)  # fmt: skip
def test_shares_are_percent_with_three_digits(value, expected):
    assert share(value) == expected
