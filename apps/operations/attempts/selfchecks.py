"""Results of self-checks of first checkpoints, for users and for later resumes."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.operations.attention import BAD_CHECKS
from apps.operations.models import Attempt

KEY = "self_check"  # of an attempt's receipt
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


def note(found: Mapping[str, Any], unit: str) -> str:
    """Return the result as a sentence."""
    at = f" ({unit or 'step'} {found['step']})" if found["checkpoint"] else ""
    first = f"the first checkpoint{at}"
    parts, reason = ", ".join(found["parts"]), found["reason"]
    steps = found["until_step"] - found["step"]
    next_steps = f"next {steps} {unit or 'step'}s"
    match found["verdict"]:
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


def fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation's fields that change by a self-check; one without a result has none."""
    return {"self_check": found["verdict"]} if found["verdict"] in TELLING else {}


def kept(receipt: Mapping[str, Any] | None, found: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """Return an attempt's receipt with what its self-check found.

    A receipt that claims an exact resume is corrected if the self-check failed.
    """
    told = dict(receipt or {}) | {KEY: dict(found) | {"note": note(found, unit)}}
    return _inexact(told, told[KEY]["note"]) if found["verdict"] in BAD_CHECKS else told


def told_of_earlier(operation_id: str, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resume's receipt, which is not exact where an earlier self-check said so."""
    found = newest(Attempt.objects.filter(operation_id=operation_id))
    if found is None or found["verdict"] not in BAD_CHECKS:
        return dict(receipt)
    return _inexact(receipt, found["note"])


def newest(attempts: Iterable[Attempt]) -> dict[str, Any] | None:
    """Return what the newest self-check found that came to a result, the newest attempt first."""
    for attempt in attempts:
        found: dict[str, Any] | None = (attempt.receipt or {}).get(KEY)
        if found is not None and found["verdict"] in TELLING:
            return found
    return None


def _inexact(receipt: Mapping[str, Any], why: str) -> dict[str, Any]:
    if not receipt.get("checkpoint"):
        return dict(receipt)  # it began anew: there was nothing to be exact about
    item = {"part": "self-check", "restored": True, "exact": False, "note": why}
    others = [each for each in receipt["items"] if each["part"] != item["part"]]
    return {**receipt, "exact": False, "items": [*others, item]}
