"""Generated malicious files: nothing in them is executed, and each reader keeps to its limits."""

import pytest

from tests.malicious.files import KINDS, generate
from trainops.confined.calling import call
from trainops.confined.limits import Limits

LIMITS = Limits(memory_bytes=2**30, seconds=240, file_bytes=2**30)
MAX_BYTES, MAX_SECONDS, BATCH = 700 * 2**20, 60, 100
pytestmark = pytest.mark.slow


def require_harmless(seeds, tmp_path):
    proof = tmp_path / "executed"
    files = [generate(seed, tmp_path, proof) for seed in seeds]
    assert not proof.exists()
    answered = call("tests.malicious.reading", {"files": [str(each) for each in files]}, LIMITS)
    assert not proof.exists()
    for each in answered["found"]:
        assert "bug" not in each, each
        assert each["seconds"] < MAX_SECONDS, each
        for sentence in each["refused"]:
            assert sentence.strip() and len(sentence) < 2000 and "Traceback" not in sentence, each
    assert answered["bytes"] < MAX_BYTES
    return answered["found"]


def require_refused_before_loading(found):
    """Two directories are refused by the outline, which is all that `show` reads."""
    for each in found:
        if "two-directories" in each["file"]:
            assert len(each["refused"]) == 3, each


def test_a_hundred_files_of_all_kinds_are_read_or_refused(tmp_path):
    found = require_harmless(range(100), tmp_path)
    assert {each["file"].partition("-")[2].partition(".")[0] for each in found} == {
        kind.replace(" ", "-") for kind in KINDS
    }
    for kind in ("two-directories", "other-pickle", "bare-pickle", "claim-of-size", "truncated"):
        assert all(each["refused"] for each in found if kind in each["file"])
    require_refused_before_loading(found)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("batch", range(9))
def test_so_are_nine_hundred_more(tmp_path, batch):
    seeds = range(1000 + BATCH * batch, 1000 + BATCH * (batch + 1))
    require_refused_before_loading(require_harmless(seeds, tmp_path))
