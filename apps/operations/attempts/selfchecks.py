"""Results of self-checks of first checkpoints, for users and for later resumes."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from apps.operations.attention import BAD_CHECKS
from apps.operations.models import Attempt
from trainops.process.protocol import Finding
from trainops.runtime.receipt import ReceiptItemJson, ReceiptJson

LOADED, PENDING = "loaded", "pending"  # the latter of attempts over HTTP; see remote_checks
EVENTS = {
    "equal": "SELF_CHECKED",
    LOADED: "SELF_CHECKED",
    "differs": "SELF_CHECK_DIFFERS",
    "not_loaded": "SELF_CHECK_FAILED",
    "inexact": "SELF_CHECKED",
    "not_made": "SELF_CHECK_NOT_MADE",
}
TELLING = ("equal", *BAD_CHECKS)  # results; the others say why there is none


def note(found: Finding, unit: str) -> str:
    """Return the result as a sentence."""
    at = f" ({unit or 'step'} {found.step})" if found.checkpoint else ""
    first = f"the first checkpoint{at}"
    parts, reason = ", ".join(found.parts), found.reason
    steps = found.until_step - found.step
    next_steps = f"next {steps} {unit or 'step'}s"
    match found.verdict:
        case "equal":
            return f"{first} was loaded by a second process, and its {next_steps} were equal"
        case "differs" if parts:
            return f"{first} was loaded by a second process, and its {next_steps} differ: {parts}"
        case "differs":
            return f"{first} was loaded by a second process, and its {next_steps} differ: {reason}"
        case "not_loaded":
            return f"{first} cannot be loaded: {reason}"
        case "loaded":
            after = f"the {unit or 'step'}s after it were not compared"
            return f"{first} was loaded into a fresh job; {after}"
        case "inexact":
            return f"{first} was loaded by a second process; a resume is not exact: {reason}"
        case _:
            return f"{first} was not checked: {reason}"


class FindingJson(TypedDict):
    """The fields of a Finding, with its sentence once it has a result."""

    checkpoint: str
    step: int
    until_step: int
    verdict: str
    parts: list[str]
    reason: str
    note: NotRequired[str]


class AttemptReceipt(TypedDict, total=False):
    """The receipt of an attempt, as its row has it: what was restored, and the self-check."""

    step: int
    checkpoint: str | None
    exact: bool
    items: list[ReceiptItemJson]
    self_check: FindingJson


def to_json(found: Finding) -> FindingJson:
    return {
        "checkpoint": found.checkpoint,
        "step": found.step,
        "until_step": found.until_step,
        "verdict": found.verdict,
        "parts": list(found.parts),
        "reason": found.reason,
    }


def fields(found: Finding) -> dict[str, str]:
    """Return the operation's fields that change by a self-check; one without a result has none."""
    return {"self_check": found.verdict} if found.verdict in TELLING else {}


def kept(receipt: AttemptReceipt | None, found: Finding, unit: str) -> AttemptReceipt:
    """Return an attempt's receipt with what its self-check found.

    A receipt that claims an exact resume is corrected if the self-check failed.
    """
    text = note(found, unit)
    added: AttemptReceipt = {**(receipt or {}), "self_check": {**to_json(found), "note": text}}
    if found.verdict in BAD_CHECKS and added.get("checkpoint"):
        return {**added, "exact": False, "items": _with_failure(added["items"], text)}
    return added


def corrected(operation_id: str, receipt: ReceiptJson) -> ReceiptJson:
    """Return a resume's receipt, which is not exact where an earlier self-check said so."""
    found = newest(Attempt.objects.filter(operation_id=operation_id))
    if found is None or found["verdict"] not in BAD_CHECKS or not receipt["checkpoint"]:
        return receipt  # without a checkpoint it starts anew: there is nothing to be exact about
    items = _with_failure(receipt["items"], found["note"])
    return {**receipt, "exact": False, "items": items}


def newest(attempts: Iterable[Attempt]) -> FindingJson | None:
    """Return what the newest self-check found that came to a result, the newest attempt first."""
    for attempt in attempts:
        receipt: AttemptReceipt = attempt.receipt or AttemptReceipt()
        found = receipt.get("self_check")
        if found is not None and found["verdict"] in TELLING:
            return found
    return None


def _with_failure(items: Iterable[ReceiptItemJson], why: str) -> list[ReceiptItemJson]:
    """Return the items of a receipt with the failed self-check as the last one."""
    item: ReceiptItemJson = {"part": "self-check", "restored": True, "exact": False, "note": why}
    return [*(each for each in items if each["part"] != item["part"]), item]
