"""Installations that earlier versions left: migrated, verified, resumed exactly and exported.

`tests/fixtures/released/make.py` made them, and says what is in them.
"""

import tarfile

import pytest
from blake3 import blake3

from tests import versions
from tests.fixtures.released.make import archive_of, digest, expected_of
from tests.journey.stack import running
from trainops.runtime import lossless

pytestmark = [pytest.mark.journey, pytest.mark.slow]
LATEST = versions.LATEST
EXPECTED = {version: expected_of(version) for version in ("b49753f", *versions.RELEASES)}
# What a receipt may call inexact: the last bits of a sum are those of the machine.
CIRCUMSTANCES = {
    "torch version", "device type", "device", "threads", "CPU instructions", "processor",
}  # fmt: skip
ADDED = {"examples", "num_examples"}  # keys of states since 0.1.0
WITH_FIRST_DAY = ("annual_return", "volatility", "sharpe", "sortino", "calmar")
OTHER_CODE = {"package trainops", "recipe code"}  # the receipt names it; the result is the same


def each_version(*values):
    return pytest.param(*values, marks=() if values[0] == LATEST else pytest.mark.exhaustive)


def cases(*names):
    """Run a test for cases of each version, by default all; of older versions on request."""
    of_versions = pytest.mark.parametrize(
        "stack", [*map(each_version, EXPECTED)], indirect=True, scope="module"
    )
    of_cases = pytest.mark.parametrize("case", names or EXPECTED[LATEST]["cases"])
    return lambda test: of_versions(of_cases(test))


def case_of(stack, case):
    if case not in stack.before["cases"]:
        pytest.skip(f"this version had no {case}")
    return stack.before["cases"][case]


@pytest.fixture(scope="module")
def stack(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("before")
    with tarfile.open(archive_of(request.param)) as archive:
        archive.extractall(directory, **versions.SAFELY)  # noqa: S202 - our own archive
    with running(directory / "var", TRAINOPS_WORKER_SLOTS="2") as stack:
        stack.before = EXPECTED[request.param]
        yield stack


@pytest.fixture(scope="module")
def resumed(stack):
    """The operations that were cancelled before, resumed: their answers by case."""
    all_cases = stack.before["cases"]
    answers = {
        case: stack.post(f"operations/{each['cancelled']}/resume", {"accept_inexact": True})
        for case, each in all_cases.items()
    }
    for each in all_cases.values():
        stack.wait(each["cancelled"], "COMPLETED")
    return answers


def outcome(stack, operation_id):
    operation = stack.get(f"operations/{operation_id}")
    return {
        "step": operation["step"],
        "result": digest(operation["result"]),
        "files": stack.artifacts(operation_id),
        "curve": digest(stack.curve(operation_id)),
    }


def expected(before):
    return {name: before[name] for name in ("step", "result", "files", "curve")}


@pytest.mark.exhaustive
@cases()
def test_what_was_completed_is_shown_unchanged(stack, case):
    before = case_of(stack, case)
    operation_id = before["completed"]
    assert outcome(stack, operation_id) == expected(before)
    events = [each["what"] for each in stack.get(f"operations/{operation_id}/events")]
    assert events == ["COMPLETED", "RUNNING", "SUBMITTED"]


@cases()
def test_its_checkpoint_verifies(stack, case):
    before = case_of(stack, case)
    operation_id = before["cancelled"]
    checkpoints = stack.get("checkpoints", operation_id=operation_id)
    assert [each["step"] for each in checkpoints] == [before["cancelled_at"]]
    for each in checkpoints:
        answer = stack.post(f"checkpoints/{operation_id}/{each['checkpoint_id']}/verify")
        assert (answer["health"], answer["level"]) == ("healthy", "ok"), answer["checks"]


@cases()
def test_what_was_cancelled_is_resumed_to_the_recorded_result(stack, resumed, case):
    before = case_of(stack, case)
    operation_id, at = before["cancelled"], before["cancelled_at"]
    assert resumed[case]["resumed_from"]["step"] == at
    attempts = {each["number"]: each for each in stack.get(f"operations/{operation_id}/attempts")}
    receipt = attempts[2]["receipt"]  # on a busy machine there may be a third one
    assert receipt["step"] == at
    inexact = {item["part"] for item in receipt["items"] if not item["exact"]} - OTHER_CODE
    assert inexact <= CIRCUMSTANCES
    if inexact:
        pytest.skip(f"another machine made the fixture; it differs in: {sorted(inexact)}")
    found = outcome(stack, operation_id)
    found["files"]["state.json"] = digest_of_older_state(stack, operation_id)
    found["result"] = digest_of_older_result(stack, operation_id, before["completed"])
    assert found == expected(before)


def digest_of_older_state(stack, operation_id):
    """Return the digest of the final state.json without the keys that older versions lack."""
    (file,) = (stack.data_dir / "checkpoints" / operation_id).glob("*-final/state.json")
    state = lossless.loads(file.read_bytes())
    older = {name: value for name, value in state.items() if name not in ADDED}
    assert blake3(lossless.dumps(state).encode()).digest() == blake3(file.read_bytes()).digest()
    return blake3(lossless.dumps(older).encode()).hexdigest()


def digest_of_older_result(stack, operation_id, completed):
    """Return the digest of a result with those figures of the recorded one that have the first
    day of intraday bars since 0.1.0.
    """
    result, recorded = (
        stack.get(f"operations/{each}")["result"] for each in (operation_id, completed)
    )
    changed = {name: recorded[name] for name in WITH_FIRST_DAY if name in result}
    return digest(result | changed)


@pytest.mark.exhaustive
@cases("training", "rl", "federated")
def test_what_was_resumed_is_exported(stack, resumed, case):
    response = stack.client.get(f"operations/{stack.before['cases'][case]['cancelled']}/export")
    assert response.is_success, response.text
    assert response.content.startswith(b"PK\x03\x04")  # as all that torch.save writes
    assert "final" in response.headers["X-Checkpoint"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("stack", [*map(each_version, EXPECTED)], indirect=True, scope="module")
def test_a_study_and_a_fork_are_still_what_they_were(stack):
    beside = stack.before["beside"]
    study = stack.get(f"studies/{beside['study']}")
    assert study["counts"] == {"COMPLETED": 2}
    fork = stack.get(f"operations/{beside['fork']}")
    assert fork["forked_from"] == beside["forked"]
