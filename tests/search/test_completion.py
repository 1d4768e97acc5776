"""What is offered while a query is typed."""

import pytest

from apps.operations.search.completion import MAX_COMPLETIONS, column_completions, completions
from tests.pages import making


@pytest.fixture
def ana(db):
    ana = making.person("ana", "operator")
    making.operation(ana, metrics={"val_loss": 1, "val_f1": 2}, tags=["night", "two words"])
    return ana


@pytest.mark.parametrize(
    ("query", "offered"),
    [
        ("stat", ["state:"]),
        ("kind:rl -stat", ["kind:rl -state:"]),
        ("state:fa", ["state:failed"]),
        ("state:failed,canc", ["state:failed,cancelled"]),
        ("tag:ni", ["tag:night"]),
        ("tag:two", ['tag:"two words"']),
        ("owner:a", ["owner:ana"]),
        ("recipe:digit_", ["recipe:digit_classifier"]),
        ("older:", []),
        ("unknown:x", []),
        ("", []),
        ("epochs>=50 ", []),
    ],
)
def test_the_last_word_is_completed(ana, query, offered):
    assert completions(query) == offered


def test_names_of_metrics_and_config_fields_are_offered(ana):
    assert {"val_loss", "val_f1"} <= set(completions("val_"))
    assert "epochs" in completions("epo")
    assert len(completions("e")) <= MAX_COMPLETIONS


def test_names_that_need_quotation_marks_are_offered_with_them(ana):
    making.operation(ana, metrics={"mAP@0.5": 1, "Validation Loss": 2, 'with "quotes"': 3})
    assert completions("kind:rl -mAP") == ['kind:rl -"mAP@0.5"']
    assert completions('-"Validation L') == ['-"Validation Loss"']
    assert completions("with") == []


def test_names_of_columns_are_completed(ana):
    assert {"val_loss", "val_f1"} <= set(column_completions("val_"))
    assert column_completions("val_loss epo")[0].startswith("val_loss epo")
    assert "val_loss" not in column_completions("val_loss")
    assert all(not each.endswith(":") for each in column_completions(""))
    assert column_completions("val_loss -s") == ["val_loss -state", "val_loss -started"]


def test_names_of_columns_that_need_quotation_marks_are_offered_with_them(ana):
    making.operation(ana, metrics={"mAP@0.5": 1, "Validation Loss": 2})
    assert column_completions("val_loss mAP") == ['val_loss "mAP@0.5"']
    assert column_completions('"mAP@0.5" "Validation L') == ['"mAP@0.5" "Validation Loss"']


def test_the_page_asks_for_them(ana, client):
    client.force_login(ana)
    found = client.get("/operations/completions", {"columns": "val_lo"}).json()
    assert found == {"completions": ["val_loss"]}
    found = client.get("/operations/completions", {"q": "tag:n"}).json()
    assert found == {"completions": ["tag:night"]}
    assert 'list="completions"' in client.get("/").content.decode()
