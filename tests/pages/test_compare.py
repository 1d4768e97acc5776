"""The page that compares operations: tables, baseline, the choice of others, refusals."""

import html
import re

import pytest

from apps.operations.studies import services as studies
from tests.api.saved import saved
from tests.api.test_comparisons import made, measured
from tests.pages import making


@pytest.fixture
def pair(ana):
    one = made(ana, "wide <net>", learning_rate=0.1, note=None)
    two = made(ana, "narrow", learning_rate=0.01)
    measured(one, "val_loss", {10: 0.5, 20: 0.25})
    measured(two, "val_loss", {10: 1.0, 20: 0.75})
    saved(one, environment={"torch": "2.13.0", "code": {"commit": "c0ffee"}})
    saved(two, environment={"torch": "2.12.0", "code": {"commit": "c0ffee"}})
    return one, two


def address(*operations, **query):
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/compare/?ids={','.join(each.pk for each in operations)}{more}"


def cells(text, row):
    """The text of each cell of a row, by the text of its header."""
    found = re.findall(r"<tr[^>]*>\s*<th scope=\"row\">(.*?)</th>(.*?)</tr>", text, re.DOTALL)
    plain = {
        words(head): [words(each) for each in re.findall(r"<td[^>]*>(.*?)</td>", rest, re.DOTALL)]
        for head, rest in found
    }
    return plain[row]


def words(markup):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def test_the_tables_are_complete_without_scripts(page, pair):
    text = page.get(address(*pair)).content.decode()
    assert cells(text, "learning_rate") == ["0.1", "0.01"]
    assert cells(text, "note") == ["null", "—"]
    assert cells(text, "torch version") == ["2.13.0", "2.12.0"]
    assert cells(text, "val_loss best, lower is better") == [
        "0.25 step 20", "0.75 +0.5 step 20",
    ]  # fmt: skip
    assert "c0ffee" not in text and "wide &lt;net&gt;" in text and "epochs</th>" not in text
    assert 'class="delta loss"' in text


def test_the_baseline_is_chosen_by_a_link(page, pair):
    one, two = pair
    text = page.get(address(*pair)).content.decode()
    assert f'href="{html.escape(address(one, two, baseline=two.pk))}"' in text
    text = page.get(address(one, two, baseline=two.pk)).content.decode()
    assert cells(text, "val_loss best, lower is better")[0] == "0.25 -0.5 step 20"
    assert 'class="delta gain"' in text and f'href="{address(one, two)}"' in text


def test_an_operation_can_be_removed_while_two_are_left(page, ana, pair):
    one, two = pair
    assert ">Remove</a>" not in page.get(address(*pair)).content.decode()
    three = made(ana, "three")
    text = page.get(address(one, two, three, baseline=two.pk)).content.decode()
    assert f'href="{address(one, three)}"' in text, "the baseline is removed"
    assert f'href="{html.escape(address(one, two, baseline=two.pk))}"' in text


def test_one_operation_leads_to_a_choice_of_others(page, ana, pair):
    one, two = pair
    assert address(one) in page.get(one.get_absolute_url()).content.decode()
    answer = page.get(address(one))
    assert answer.context["others"] == [two]
    text = answer.content.decode()
    assert f'value="{two.pk}"' in text and text.count(f'value="{one.pk}"') == 1
    chosen = page.get("/compare/", {"ids": [one.pk, two.pk]})
    assert chosen.context["columns"][0].is_baseline
    alone = page.get(address(making.operation(ana, name="alone", kind="backtest")))
    assert "There is no other operation of its kind" in alone.content.decode()


def test_what_cannot_be_compared_is_explained(page, pair):
    one, two = pair
    for path, status, says in (
        ("/compare/", 400, "got 0; allowed: 2 to 12 operations"),
        (address(one, one), 400, "2 times; allowed: 2 to 12 operations"),
        (address(one, two, baseline="op_x"), 400, "&#x27;op_x&#x27;; allowed: one of the ids"),
        (address(one) + ",op_gone", 404, "no operation &#x27;op_gone&#x27;"),
        ("/compare/?ids=op_gone", 404, "no operation &#x27;op_gone&#x27;"),
    ):
        answer = page.get(path)
        assert answer.status_code == status and says in answer.content.decode(), path


def test_viewers_may_compare_and_others_may_not(as_, client, vera, pair):
    assert as_(vera).get(address(*pair)).status_code == 200
    assert client.get(address(*pair)).url.startswith("/login/?next=/compare/")
    assert as_(making.person("noa", None)).get(address(*pair)).status_code == 403


def test_operations_that_have_measured_nothing_are_compared(page, ana):
    text = page.get(address(making.operation(ana), making.operation(ana, "RUNNING"))).content
    assert b"has measured anything." in text and b"Still active: 2 operations" in text
    assert b"data-settled" not in text
    assert b"has no checkpoint" in text


@pytest.mark.slow
def test_a_study_links_to_the_comparison_of_its_first_operations(page, ana, in_process):
    study = studies.create(
        kind="training", config={"recipe": "digits"}, owner=ana,
        design={"values": {"seed": [*range(13)]}},
    )  # fmt: skip
    ids = [line["id"] for line in page.get(study.get_absolute_url()).context["lines"]]
    text = page.get(study.get_absolute_url()).content.decode()
    assert f'href="/compare/?ids={",".join(ids[:12])}"' in text
    assert "Compare the first 12" in text and ids[12] not in text.partition("Compare the")[0]
    assert page.get(f"/compare/?ids={','.join(ids[:12])}").status_code == 200
