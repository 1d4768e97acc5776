"""The forked processes of `tests/confinement.py` have the limits of confined ones."""

import os

import pytest

from tests.confined.test_confined import LIMITS, MIB
from tests.confinement import call
from trainops.confined.calling import ConfinedProcessFailed

pytestmark = pytest.mark.slow


def ask(do):
    return call("tests.confined.programs", {"do": do}, LIMITS)["answer"]


def test_a_forked_process_has_every_limit(monkeypatch):
    monkeypatch.setenv("TRAINOPS_RECIPES", "tests.engines.toy:RECIPE")
    found = ask("limits")
    assert (found["CORE"], found["FSIZE"], found["NOFILE"]) == (0, 20 * MIB, 256)
    assert found["CPU"] == 30 * os.cpu_count() and found["AS"] > 200 * MIB
    assert ask("environment")["TRAINOPS_RECIPES"] == "tests.engines.toy:RECIPE"


@pytest.mark.parametrize("how", ["crash", "fail"])
def test_a_forked_process_that_dies_has_no_answer(how):
    with pytest.raises(ConfinedProcessFailed, match="ended with exit code"):
        ask(how)
