"""Operations in groups, on both databases: compared with groups that are counted one by one."""

import random
from collections import Counter, defaultdict

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.operations.models import Operation, Study
from apps.operations.search.conditions import condition
from apps.operations.search.groups import GroupingError, grouped
from tests.pages import making

pytestmark = [pytest.mark.database, pytest.mark.slow]
STATES = ("COMPLETED", "FAILED", "CANCELLED")
RATES = (0.1, 1, 1e-05, None)
OPTIMIZERS = ("adamw", "two words", 'a "quoted" one', "7", True, None)


@pytest.fixture
def ana(db):
    return making.person("ana", "operator")


def study(owner, name, metric="best.value", mode="min"):
    return Study.objects.create(
        id=f"st_{name}", name=name.title(), kind="training", owner=owner, config={}, design={},
        submission={}, metric=metric, mode=mode, num_planned=1,
    )  # fmt: skip


@pytest.fixture
def drawn(ana):
    """Operations whose values are drawn, with what each of them has."""
    draw = random.Random(7)  # noqa: S311 - the same every time
    studies = [study(ana, "one"), study(ana, "two", "speed.most", "max"), None]
    made = []
    for _ in range(24):
        tags = draw.sample(["night", "two words", "x"], draw.randrange(3))
        one = making.operation(ana, draw.choice(STATES), tags=tags)
        own = {"optimizer": draw.choice(OPTIMIZERS), "learning_rate": draw.choice(RATES)}
        best, most = (draw.choice([None, "nan", draw.random()]) for _ in range(2))
        of = draw.choice(studies)
        project = draw.choice(["", "vision"])
        mode = "min" if of is None or of.name == "One" else "max"
        one.row.update(
            config=one.config | own | {"mode": mode}, study=of, project=project,
            result={"best": {"value": best}, "speed": {"most": most}},
        )  # fmt: skip
        made.append({
            "name": one.pk, "state": one.state, "study": of and of.pk, "project": project or None,
            "tag": tags or [None], "best": best, "most": most, "mode": mode, **own,
        })  # fmt: skip
    return made


def shares(one, name):
    values = one[name] if name == "tag" else [one[name]]
    return [{True: "true"}.get(each, each) if each is True else each for each in values]


@pytest.mark.parametrize("name", ["study", "state", "project", "tag", "optimizer", "learning_rate"])
def test_groups_are_those_that_are_counted_one_by_one(drawn, ana, name):
    expected = defaultdict(list)
    for one in drawn:
        for value in shares(one, name):
            expected[value].append(one)
    found = grouped(Operation.objects.all(), name, limit=200).rows
    assert {each["value"] for each in found} == set(expected) and len(found) == len(expected)
    for each in found:
        mine = expected[each["value"]]
        assert each["counts"] == dict(Counter(one["state"] for one in mine))
        assert each["num_operations"] == len(mine)
        if each["query"]:
            members = Operation.objects.filter(condition(each["query"], ana))
            assert set(members.values_list("pk", flat=True)) == {one["name"] for one in mine}
        else:
            assert each["value"] in ('a "quoted" one', "7")
        assert each["best"] == best_of(mine, name), each["value"]


def best_of(mine, name):
    """The best value, where all that have one share objective and mode."""
    judged = []
    for one in mine:
        is_of_two = name == "study" and one["study"] == "st_two"
        value = one["most"] if is_of_two else one["best"]
        if name == "study" and one["study"] is None:
            value = None
        metric = "speed.most" if is_of_two else "val_loss"
        if isinstance(value, float) and one["state"] == "COMPLETED":
            judged.append((metric, one["mode"], value))
    if len({each[:2] for each in judged}) != 1:
        return None
    metric, mode, _ = judged[0]
    values = [value for *_, value in judged]
    return {"name": metric, "mode": mode, "value": min(values) if mode == "min" else max(values)}


def test_studies_have_their_names_and_groups_come_in_pages(drawn, ana):
    first = grouped(Operation.objects.all(), "study", limit=2)
    rest = grouped(Operation.objects.all(), "study", limit=2, offset=2)
    labels = {each["value"]: each["label"] for each in [*first.rows, *rest.rows]}
    assert labels == {"st_one": "One", "st_two": "Two", None: ""}
    assert first.has_more and not rest.has_more
    newest = [each["newest_at"] for each in [*first.rows, *rest.rows]]
    assert newest == sorted(newest, reverse=True)


def test_the_number_of_queries_does_not_depend_on_the_number_of_groups(drawn, ana):
    numbers = []
    for limit in (2, 200):
        with CaptureQueriesContext(connection) as queries:
            grouped(Operation.objects.all(), "study", limit=limit)
        numbers.append(len(queries))
    assert numbers == [3, 3]


@pytest.mark.parametrize("name", ["val_loss", "-kind", "metric.x", "", "a b"])
def test_what_cannot_be_shared_is_refused(db, name):
    with pytest.raises(GroupingError, match="allowed: study, kind"):
        grouped(Operation.objects.all(), name, limit=5)


def test_quoted_names_group(ana):
    for value in (3, 3, "x"):
        one = making.operation(ana, "COMPLETED")
        one.row.update(config=one.config | {"parameters": {"layer sizes": value}})
    name = '"config.parameters.layer sizes"'
    rows = grouped(Operation.objects.all(), name, limit=10).rows
    assert {(each["value"], each["num_operations"]) for each in rows} == {(3, 2), ("x", 1)}
    for row in rows:
        assert (
            Operation.objects.filter(condition(row["query"], ana)).count()
            == (row["num_operations"])
        )
    making.operation(ana, "COMPLETED")
    (none,) = (each for each in grouped(Operation.objects.all(), name, limit=10).rows
               if each["value"] is None)  # fmt: skip
    assert Operation.objects.filter(condition(none["query"], ana)).count() == 1
