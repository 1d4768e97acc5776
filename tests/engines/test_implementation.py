"""TRAINOPS_PLAIN, the manifest's entry and the receipt's line about the implementation."""

import pytest

from trainops.runtime import implementation, reproducibility
from trainops.runtime.implementation import Implementation
from trainops.runtime.receipt import compare_environments

PLAIN = {"implementation": "plain"}


@pytest.mark.parametrize(("value", "expected"), [("", "fast"), ("0", "fast"), ("1", "plain")])
def test_the_variable_selects_the_implementation(value, expected, monkeypatch):
    assert implementation.read({"TRAINOPS_PLAIN": value}) == Implementation(expected)
    monkeypatch.setenv("TRAINOPS_PLAIN", value)
    assert implementation.is_plain() is (expected == "plain")


@pytest.mark.parametrize("value", ["yes", "2", " 1"])
def test_another_value_is_refused(value):
    with pytest.raises(ValueError, match=f"TRAINOPS_PLAIN is '{value}'; it must be 0 or 1"):
        implementation.read({"TRAINOPS_PLAIN": value})


def test_only_the_plain_implementation_is_in_the_environment(monkeypatch):
    """Releases are named by the environment, and those of older versions continue."""
    monkeypatch.delenv("TRAINOPS_PLAIN", raising=False)
    fast = reproducibility.environment()
    assert "implementation" not in fast
    monkeypatch.setenv("TRAINOPS_PLAIN", "1")
    assert reproducibility.environment() == fast | PLAIN


@pytest.mark.parametrize(
    ("before", "now", "is_same", "is_exact", "note"),
    [
        ({}, {}, False, True, "fast"),
        (PLAIN, PLAIN, False, True, "plain"),
        ({}, PLAIN, False, False, "was fast, is plain"),
        (PLAIN, {}, False, False, "was plain, is fast"),
        ({}, PLAIN, True, True, "was fast, is plain; both have equal results"),
    ],
)
def test_a_receipt_says_whether_the_implementation_is_the_same(
    before, now, is_same, is_exact, note
):
    *_, item = compare_environments(before, now, is_same_when_plain=is_same)
    assert (item.part, item.exact, item.restored) == ("implementation", is_exact, is_exact)
    assert item.note == note
