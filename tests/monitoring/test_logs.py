"""Logs as JSON: one object a line, and what it belongs to."""

import json
import logging
import threading

import pytest

from apps.operations.attempts import work
from tests.operations import rows
from trainops import log_format


@pytest.fixture
def lines(monkeypatch):
    """What is logged while a test runs, as the JSON handler writes it."""
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(json.loads(self.format(record)))

    handler = Handler()
    handler.setFormatter(log_format.JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    monkeypatch.setattr(root, "level", logging.INFO)
    yield found
    root.removeHandler(handler)


def test_a_record_is_one_object_in_one_line():
    formatter = log_format.JsonFormatter()
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        record = logging.makeLogRecord(
            {"msg": "%s\u2028ü\n\x1b[31m", "args": ("x",), "levelname": "ERROR", "name": "a.b",
             "exc_info": (type(error), error, error.__traceback__), "created": 1.5}
        )  # fmt: skip
    text = formatter.format(record)
    assert text.isascii() and "\n" not in text
    found = json.loads(text)
    assert found["message"] == "x\u2028ü\n\x1b[31m"
    assert (found["time"], found["level"], found["logger"]) == (
        "1970-01-01T00:00:01.500Z",
        "ERROR",
        "a.b",
    )
    assert found["exception"].endswith("ValueError: a\nb")


def test_blocks_name_what_their_lines_belong_to(lines):
    logger = logging.getLogger("test")
    with log_format.about(operation="op_1", attempt=2):
        with log_format.about(attempt=3):
            logger.info("inner")
        logger.info("outer")
        thread = threading.Thread(target=logger.info, args=["elsewhere"])
        thread.start()
        thread.join()
    logger.info("after")
    assert [(line.get("operation"), line.get("attempt")) for line in lines] == [
        ("op_1", 3), ("op_1", 2), (None, None), (None, None),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_lines_of_an_attempt_name_it(lines, monkeypatch):
    operation = rows.submitted()
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.disk_bytes, runtime.memory_bytes = "w", 10**15, 10**15
    runtime.slots.count = 1
    monkeypatch.setattr(runtime.slots, "count", 1)
    runtime.forkserver = type("Ready", (), {"is_ready": True})()
    seen = logging.getLogger("supervision")
    monkeypatch.setattr(work, "_run", lambda *_: seen.info("begins"))
    assert work._work_once(runtime) is True
    (line,) = [each for each in lines if each["logger"] == "supervision"]
    named = (line["operation"], line["attempt"], line["kind"])
    assert named == (operation.pk, 1, "training")


class TestRequests:
    pytestmark = pytest.mark.django_db

    def test_a_response_has_the_id_of_its_lines(self, client, lines):
        response = client.get("/api/v1/operations", headers={"Authorization": "Bearer wrong"})
        refused = next(each for each in lines if each["logger"] == "trainops.access")
        assert refused["request_id"] == response["X-Request-ID"]
        assert len(response["X-Request-ID"]) == 16

    @pytest.mark.parametrize(
        ("given", "is_taken"),
        [
            ("a.Trace_id-1", True),
            ("x" * 65, False),
            ("a b", False),
            ('{"a": 1}', False),
            ("", False),
        ],
    )
    def test_a_client_may_name_its_request(self, client, given, is_taken):
        response = client.get("/api/v1/health", headers={"X-Request-ID": given})
        assert (response["X-Request-ID"] == given) == is_taken


def test_other_formats_are_refused():
    assert log_format.read({}) == "line"
    assert log_format.read({"TRAINOPS_LOG_FORMAT": "json"}) == "json"
    with pytest.raises(ValueError, match="is 'xml'; allowed: line, json"):
        log_format.read({"TRAINOPS_LOG_FORMAT": "xml"})
