"""The query language: terms, their places, and errors that name both."""

import pytest

from apps.operations.search.language import QueryError, parse


def test_terms_have_name_operator_value_and_place():
    found = parse(' val_loss<0.1  -tag:night "two words" plain 04:29')
    assert [(t.offset, t.is_negated, t.name, t.operator, t.plain) for t in found] == [
        (1, False, "val_loss", "<", "0.1"),
        (15, True, "tag", ":", "night"),
        (26, False, "", "", "two words"),
        (38, False, "", "", "plain"),
        (44, False, "", "", "04:29"),
    ]


def test_commas_separate_alternatives_and_quotes_protect_them():
    (term,) = parse('tag:a,"b, c"')
    assert term.values == ["a", "b, c"]


@pytest.mark.parametrize("operator", ["<=", ">=", "!=", "=", "<", ">"])
def test_each_comparison_is_one_operator(operator):
    (term,) = parse(f"checkpoint.every_seconds{operator}5")
    assert (term.name, term.operator, term.value) == ("checkpoint.every_seconds", operator, "5")


@pytest.mark.parametrize("operator", ["<=", ">=", "!=", "=", "<", ">"])
@pytest.mark.parametrize("name", ["mAP@0.5", "Validation Loss", "f1(macro)", "a=b", "best(acc@1)"])
def test_a_name_before_a_comparison_may_be_quoted(name, operator):
    (term,) = parse(f'-"{name}"{operator}0.4')
    assert (term.is_negated, term.name, term.operator, term.value) == (True, name, operator, "0.4")


@pytest.mark.parametrize(
    "text",
    ["-", "--", "<5", "-<5", ":x", '"a=5"', 'run"<"x', '"a":b', "🎉 שלום", "a-b", "x" * 500],
)
def test_anything_else_is_free_text(text):
    assert all(not term.name for term in parse(text))


@pytest.mark.parametrize(
    ("text", "offset", "problem"),
    [
        ("kind:rl tag:", 8, "a value is missing after ':'"),
        ("epochs>=", 0, "a value is missing after '>='"),
        ("rl acc@1=5", 3, "not a comparison; put the name before the sign"),
        ("-acc@1<10", 0, "not a comparison"),
        ("kind:training -mAP@0.5>0.4", 14, "not a comparison"),
        ("0.5<loss", 0, "not a comparison"),
        ('"two words"x<1', 0, "not a comparison"),
        ('""<1', 0, "not a comparison"),
        ('"a\0b"<1', 0, "not a comparison"),
        ("val_loss < 0.1", 9, "no spaces around a sign: val_loss<0.1"),
        ("kind:rl val_loss <0.1", 17, "no spaces around a sign: val_loss<0.1"),
        ("val_loss\u22640.1", 0, "not a comparison"),
        ("epochs==5", 0, "got '=='; allowed: <= >= != = < >"),
        ("epochs=>5", 0, "got '=>'; allowed: <= >= != = < >"),
        ("epochs<>5", 0, "got '<>'; allowed: <= >= != = < >"),
        ('"mAP@0.5"<', 0, "a value is missing after '<'"),
        ('"mAP@0.5"<"0', 0, "the quotation mark is not closed"),
        ('one tag:"night', 4, "the quotation mark is not closed"),
        ("x" * 1001, 1000, "at most 1000"),
        ("a " * 31, 60, "has 31 terms; at most 30"),
    ],
)
def test_errors_name_the_place_and_the_problem(text, offset, problem):
    with pytest.raises(QueryError, match=problem) as found:
        parse(text)
    assert found.value.offset == offset
    assert f"character {offset + 1}" in found.value.message


def test_a_quoted_value_may_begin_with_a_sign():
    assert [term.plain for term in parse('name="=5" x "<5" kind:rl <5')] == [
        "=5",
        "x",
        "<5",
        "rl",
        "<5",
    ]
