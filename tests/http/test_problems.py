"""Bodies that are wrong in very many places: few are reported, and little time is spent."""

import json
import tracemalloc
from io import BytesIO

import pytest
from rest_framework.exceptions import ParseError, ValidationError

from trainops.errors import MAX_PROBLEMS
from trainops.http.errors import failure_of
from trainops.http.parsers import MAX_ITEMS, JSONParser, ReportParser
from trainops.http.serializers import TokenRequestSerializer
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import ConfigError

MIB = 1024**2


def parsed(body, parser=JSONParser):
    return parser().parse(BytesIO(body))


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 1_000_000 + b"0]",
        b"{" + b",".join(b'"%d":{}' % number for number in range(200_000)) + b"}",
        b"[" * 3_000_000,
        b"[" + b"0," * 1_500_000 + b"0]",
    ],
    ids=["lists", "keys", "depth", "numbers"],
)
def test_many_values_are_refused_before_they_are_made(body):
    tracemalloc.start()
    with pytest.raises(ParseError, match=f"more than {MAX_ITEMS} values and keys"):
        parsed(body)
    assert tracemalloc.get_traced_memory()[1] < 3 * len(body)
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["[,:{" * 100_000, '\\"[,' * 100_000, "\\" * 100_001, "ä,[\n" * 9])
def test_what_stands_in_strings_is_not_counted(text):
    assert parsed(json.dumps({"log": text, "other,": 1}).encode())["log"] == text


@pytest.mark.parametrize("unfinished", [b'"', b'\\"', b'"\\', b'"\\\n'])
def test_unfinished_strings_take_no_longer(unfinished):
    """With a pattern that tries again at each quote this takes hours."""
    with pytest.raises(ParseError, match="not valid JSON"):
        parsed(b'{"' + unfinished * 1_000_001)


def test_a_worker_may_send_thousands_of_points():
    point = {"step": 1, "at": "2026-01-01T00:00:00Z", "metrics": dict.fromkeys("abcdefgh", 0.5)}
    body = json.dumps({"points": [point] * 5000}).encode()
    assert len(parsed(body, ReportParser)["points"]) == 5000


@pytest.mark.parametrize("num", [1, MAX_PROBLEMS, MAX_PROBLEMS + 1, 15_000])
def test_a_config_says_the_first_problems_and_how_many_more(num):
    with pytest.raises(ConfigError) as caught:
        OperationConfig.parse({f"field{number}": 1 for number in range(num)})
    problem, _ = failure_of(caught.value, {})
    require_bounded(problem, num)


def test_long_names_are_cut():
    with pytest.raises(ConfigError) as caught:
        OperationConfig.parse({"x" * MIB: 1, "seed": "y" * MIB})
    assert len(str(caught.value)) < 2000


def test_every_problem_of_serializers_counts():
    problem, _ = failure_of(ValidationError({str(number): ["bad"] for number in range(900)}), {})
    require_bounded(problem, 900)


def test_a_serializer_names_the_first_unknown_fields():
    serializer = TokenRequestSerializer(data={f"field{number}": 1 for number in range(15_000)})
    with pytest.raises(ValidationError) as caught:
        serializer.is_valid(raise_exception=True)
    assert caught.value.detail["non_field_errors"] == f"{15_000 - MAX_PROBLEMS} more unknown fields"
    assert len(caught.value.detail) == MAX_PROBLEMS + 1


def require_bounded(problem, num):
    assert len(problem.details["fields"]) == min(num, MAX_PROBLEMS)
    assert problem.details.get("num_more", 0) == max(0, num - MAX_PROBLEMS)
    assert len(problem.message) < 2000
    if num > 1:
        assert f"(and {num - 1} more: " in problem.message


def test_who_is_not_signed_in_hears_that_first(client, db):
    body = {f"field{number}": 1 for number in range(100)}
    response = client.post("/api/v1/tokens", body, content_type="application/json")
    assert response.json()["error"]["code"] == "NOT_AUTHENTICATED"
