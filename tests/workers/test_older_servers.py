"""The reference worker over HTTP with servers of earlier versions."""

from pathlib import Path

import pytest

from examples import http_worker
from trainops.runtime.receipt import Receipt

EXPECTED = {"step", "checkpoint", "exact", "items"}
UNCERTAIN = {"train": "the loader has no state"}
CLAIMED = {"operation_id": "op", "attempt": 1}


class Server:
    """A server that accepts these keys of a receipt, and no others."""

    def __init__(self, keys):
        self.keys, self.received = keys, []

    def call(self, method, path, body):
        if body["receipt"].keys() != self.keys:
            raise AssertionError(f"400 VALIDATION_ERROR: must have {', '.join(sorted(self.keys))}")
        self.received.append(body["receipt"])
        return {}


@pytest.mark.parametrize(
    ("more", "keys"), [({}, EXPECTED), ({"accepts_uncertain": True}, EXPECTED | {"uncertain"})]
)
def test_uncertain_is_sent_only_where_the_claim_says_that_the_server_accepts_it(
    monkeypatch, more, keys
):
    monkeypatch.setattr(http_worker, "REPORT_SECONDS", 3600)
    server = Server(keys)
    attempt = http_worker.Attempt(server, CLAIMED | more, Path())
    attempt.restored(Receipt(step=0, uncertain=UNCERTAIN))
    attempt.is_over.set()
    (receipt,) = server.received
    assert receipt.get("uncertain") == (UNCERTAIN if more else None)
