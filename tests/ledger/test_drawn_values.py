"""What a database gives back has the text that the digest was taken over, whatever the value."""

import json
import sys
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.ledger import services as ledgers
from apps.ledger.models import LedgerEntry
from trainops.runtime.ledger import Entry
from trainops.runtime.ledger_fields import (
    MAX_INTEGER,
    LedgerFields,
    choice,
    integer,
    number,
    text,
)

pytestmark = [pytest.mark.django_db, pytest.mark.database]
FIELDS = LedgerFields(
    fields=(
        number("float"), number("share", 1), integer("whole"), integer("group", is_nullable=True),
        integer("index", is_nullable=True), text("text", 30), choice("choice", ("a", "b")),
    ),
    group="group",
    index="index",
)  # fmt: skip
FLOATS = st.one_of(
    st.floats(0, allow_infinity=False, allow_nan=False),
    st.integers(0, 2**1023),
    st.sampled_from([
        0, 1, 1.0, -0.0, 0.1, 1e16, 1e22, 1e23, 2**53 + 1, 10**308, 5e-324, 2.2250738585072014e-308,
        sys.float_info.max, 123456789012345680.0,
    ]),
)  # fmt: skip
INTEGERS = st.one_of(st.integers(0, MAX_INTEGER), st.sampled_from([2**53 + 1, MAX_INTEGER]))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
VALUES = st.fixed_dictionaries({
    "float": FLOATS, "share": st.one_of(st.floats(0, 1), st.sampled_from([0, 1, -0.0])),
    "whole": INTEGERS, "group": st.none() | INTEGERS, "index": st.none() | INTEGERS,
    "text": TEXTS, "choice": st.sampled_from("ab"),
})  # fmt: skip


def entries(values):
    return [Entry(identity=f"{at}", step=at, values=each) for at, each in enumerate(values)]


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=1, max_size=8))
def test_drawn_values_are_read_as_they_were_written_and_verified(drawn):
    operation_id, written = uuid.uuid4().hex, entries(drawn)
    ledgers.append(operation_id, 1, written, FIELDS)
    found = ledgers.entries_of(operation_id, FIELDS)
    assert [(each.identity, each.values) for each in found] == [
        (each.identity, {**each.values, **floats(each.values)}) for each in written
    ]
    assert [{name: type(each) for name, each in one.values.items()} for one in found] == [
        {name: type(each) for name, each in FIELDS.stored(one.values).items()} for one in written
    ]
    for one in found:
        group, index = one.values["group"], one.values["index"]
        if group is not None and index is not None:
            assert one in ledgers.entries_where(operation_id, FIELDS, group=group, index=index)


def floats(values):
    return {name: float(values[name]) for name in ("float", "share")}


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_an_entry_sent_as_json_by_another_program_has_the_same_text(values):
    """Integers for floats, and floats without their point, are one value."""
    one = FIELDS.texts("a", 1, FIELDS.stored(values))
    sent = json.loads(json.dumps(FIELDS.stored(values)))
    whole = {
        name: int(each) if name in ("float", "share") and float(each).is_integer() else each
        for name, each in sent.items()
    }
    assert FIELDS.texts("a", 1, sent) == FIELDS.texts("a", 1, whole) == one


@pytest.mark.parametrize(
    ("name", "value"),
    [("float", float("nan")), ("float", float("inf")), ("float", -1), ("float", True),
     ("float", "1"), ("float", None), ("float", 10**400), ("share", 1.5), ("whole", 1.0),
     ("whole", True), ("whole", -1), ("whole", 2**63), ("whole", None), ("group", 0.5),
     ("text", "a\0b"), ("text", "\ud800"), ("text", "a" * 31), ("text", None), ("choice", "c")],
)  # fmt: skip
def test_values_that_no_database_gives_back_are_refused(name, value):
    good = {"float": 1, "share": 1, "whole": 1, "group": 1, "index": 1, "text": "", "choice": "a"}
    with pytest.raises(ValueError, match="invalid ledger entries, none was recorded"):
        ledgers.append("op_1", 1, entries([good, {**good, name: value}]), FIELDS)
    assert not LedgerEntry.objects.exists()


@pytest.mark.parametrize("identity", ["a\0", "\udfff", "a" * 65, None, 7], ids=ascii)
def test_identities_that_no_database_gives_back_are_refused(identity):
    good = {"float": 1, "share": 1, "whole": 1, "group": 1, "index": 1, "text": "", "choice": "a"}
    with pytest.raises(ValueError, match="identity of"):
        ledgers.append("op_1", 1, [Entry(identity=identity, step=1, values=good)], FIELDS)
