"""The log as lines: windows, and searches by text, level and time."""

import random
from datetime import timedelta
from itertools import pairwise, product

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.operations import log_lines
from apps.operations.models import LogChunk
from tests.api.answers import data, error
from tests.operations.rows import claimed

STAMPED = "2026-11-23T12:04:13.077Z WARNING checkpoint not saved: disk full\n"
TRACE = 'Traceback (most recent call last):\n  File "m.py", line 1\nValueError: no\nafter\n'


@pytest.fixture
def operation(operator):
    return claimed(operator.user)


@pytest.fixture
def ask(operator, operation):
    def lines(**query):
        return data(operator.get(f"operations/{operation.pk}/logs/lines", **query))

    return lines


def printed(operation, *texts, attempt=1):
    return [
        LogChunk.objects.create(operation_id=operation.pk, attempt=attempt, text=text).pk
        for text in texts
    ]


def texts(found):
    return [line["text"] for line in found["lines"]]


def test_lines_have_times_and_levels(ask, operation):
    printed(operation, "plain\n", STAMPED, TRACE, "UserWarning: x\nlogging: ERROR y\n")
    found = ask()["lines"]
    assert [line["level"] for line in found] == [
        "", "WARNING", "ERROR", "ERROR", "ERROR", "", "WARNING", "ERROR",
    ]  # fmt: skip
    assert found[1]["at"] == "2026-11-23T12:04:13.077Z"
    assert found[1]["text"][found[1]["prefix"] :] == "checkpoint not saved: disk full"
    assert found[0]["prefix"] == 0 and found[0]["at"].startswith(str(timezone.now().year))


def test_a_line_that_several_chunks_hold_is_one_line(ask, operation):
    first, second, third = printed(operation, "one\ntw", "o, and mo", "re\nthree\n")
    assert texts(ask()) == ["one", "two, and more", "three"]
    after = ask(after=second)
    assert texts(after) == ["re", "three"]
    assert [line["continues"] for line in after["lines"]] == [True, False]
    before = ask(before=third)
    assert texts(before) == ["one", "two, and mo"] and not before["has_before"]
    assert before["has_after"] and before["first_id"] == first


def test_lines_of_different_attempts_are_not_joined(ask, operation):
    printed(operation, "cut")
    printed(operation, "next\n", attempt=2)
    assert texts(ask()) == ["cut", "next"]
    assert texts(ask(attempt=2)) == ["next"]


def test_windows_are_bounded_and_cover_the_log(ask, operation):
    rows = [f"line {number}\n" for number in range(40_000)]
    printed(operation, *("".join(rows[at : at + 1000]) for at in range(0, 40_000, 1000)))
    found = ask()
    collected = found["lines"]
    while found["has_before"]:
        assert sum(len(line["text"]) for line in found["lines"]) < 300_000
        found = ask(before=found["first_id"])
        collected = found["lines"] + collected
    assert [line["text"] + "\n" for line in collected] == rows


def test_a_search_gives_lines_around_each_match_and_the_number_of_all(ask, operation):
    printed(operation, "".join(f"line {number}\n" for number in range(100)))
    found = ask(search="LINE 5", around=1, limit=3)
    assert found["count"] == 11 and found["has_before"]
    few = ask(search="line 50", around=1)
    assert texts(few) == ["line 49", "line 50", "line 51"]
    assert [line["is_hit"] for line in few["lines"]] == [False, True, False]
    two = ask(search="0", around=1, limit=2)
    assert [line["group"] for line in two["lines"]] == [0, 0, 0, 1, 1, 1]


def expected(is_hit, limit, around):
    """Return the numbers of the lines that a search shows: the last hits, and lines around each."""
    hits = [number for number, each in enumerate(is_hit) if each]
    surplus, wanted = hits[:-limit], hits[-limit:]
    first = surplus[-1] + 1 if surplus else 0
    return [
        number for number in range(first, len(is_hit))
        if any(abs(number - hit) <= around for hit in wanted)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_search_shows_as_many_matching_lines_as_its_limit(operation, seed):
    draw = random.Random(seed)  # noqa: S311 - draws cases
    is_hit = [draw.random() < (0.1, 0.4, 0.8, 1.0)[seed] for _ in range(40)]
    rows = [f"{number} {'hit' if each else 'no'}\n" for number, each in enumerate(is_hit)]
    printed(operation, "".join(rows[:17]), "".join(rows[17:]))
    for limit, around in product((1, 2, 3, 7, 40), (0, 1, 2, 5, 40)):
        found = log_lines.search(
            operation.pk, log_lines.LogSearch("hit", context=around, limit=limit)
        )
        numbers = [int(text.split()[0]) for text in texts(found)]
        assert numbers == expected(is_hit, limit, around)
        assert sum(line["is_hit"] for line in found["lines"]) == min(limit, sum(is_hit))
        assert (found["count"], found["has_before"]) == (sum(is_hit), sum(is_hit) > limit)
        groups = [line["group"] for line in found["lines"]]
        gaps = [after - before > 1 for before, after in pairwise(numbers)]
        assert [after - before for before, after in pairwise(groups)] == gaps


def test_a_search_by_level_and_time(ask, operation):
    old, _ = printed(operation, "ERROR old\nINFO x\n", "WARNING new\nDEBUG y\n")
    LogChunk.objects.filter(pk=old).update(at=timezone.now() - timedelta(hours=2))
    assert texts(ask(level="WARNING")) == ["ERROR old", "WARNING new"]
    since = (timezone.now() - timedelta(hours=1)).isoformat()
    assert texts(ask(since=since)) == ["WARNING new", "DEBUG y"]
    assert ask(search="nothing like it")["lines"] == []


def test_odd_text_is_text(ask, operation):
    odd = "\x1b[31mred\x1b[0m <script>alert(1)</script> \u202eabc \N{PARTY POPPER} \ufffd"
    printed(operation, f"{odd}\r\n")
    assert texts(ask()) == [odd] and texts(ask(search="<SCRIPT>")) == [odd]


def test_small_chunks_are_read_by_few_queries(operation, django_assert_max_num_queries):
    LogChunk.objects.bulk_create(
        LogChunk(operation_id=operation.pk, attempt=1, text=f"{number:059}\n")
        for number in range(2500)
    )
    with django_assert_max_num_queries(12):
        assert log_lines.search(operation.pk, log_lines.LogSearch("1"))["count"] > 200
    with django_assert_max_num_queries(15):
        assert len(log_lines.window(operation.pk)["lines"]) == 2500


@pytest.mark.database
@pytest.mark.slow
def test_windows_of_all_attempts_use_an_index_of_operation_and_id(operation):
    for of in (*[claimed(operation.owner)] * 30, operation):
        LogChunk.objects.bulk_create(
            LogChunk(operation_id=of.pk, attempt=1, text="x" * 200 + "\n") for _ in range(1100)
        )
    if connection.vendor == "postgresql":  # its plan depends on what it knows of the rows
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE operations_logchunk")
    with CaptureQueriesContext(connection) as queries:
        assert len(log_lines.window(operation.pk, after=0)["lines"]) == 1100
    sizes = next(each["sql"] for each in queries if "LENGTH(" in each["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{sizes}")
        plan = str(cursor.fetchall())
    assert "log_of_operation" in plan, plan


@pytest.mark.slow
def test_a_very_long_line_is_read_in_bounded_pieces(operation):
    LogChunk.objects.bulk_create(
        LogChunk(operation_id=operation.pk, attempt=1, text="x" * 32_768) for _ in range(3200)
    )
    found = log_lines.window(operation.pk)
    (line,) = found["lines"]
    assert line["continues"] and len(line["text"]) <= log_lines.WINDOW_CHARS
    (hit,) = log_lines.search(operation.pk, log_lines.LogSearch("xx"))["lines"]
    assert len(hit["text"]) == log_lines.MAX_LINE_CHARS


def test_a_search_within_a_window_is_refused(operator, operation):
    path = f"operations/{operation.pk}/logs/lines"
    problem = error(operator.get(path, after=1, search="x"), 400, "VALIDATION_ERROR")
    assert "allowed: one of after, before" in str(problem)
    assert "DEBUG" in str(error(operator.get(path, level="LOUD"), 400, "VALIDATION_ERROR"))
