import os

import pytest

from apps.operations.attempts.children import ForkServer
from tests.ranks.running import Attempts
from tests.waiting import wait_until

RECIPES = ("streamed", "together", "divided", "divided_modules", "replicas", "lit", "hugging")


@pytest.fixture(scope="module")
def forkserver():
    known = os.environ["TRAINOPS_RECIPES"]
    os.environ["TRAINOPS_RECIPES"] = ",".join(
        [known, *(f"tests.ranks.{each}:RECIPE" for each in RECIPES)]
    )
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    yield forkserver
    forkserver.close()
    os.environ["TRAINOPS_RECIPES"] = known


@pytest.fixture
def attempts(forkserver, tmp_path):
    """Return the attempts of a new operation."""
    return Attempts(forkserver, tmp_path)


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    """Return the reports of undisturbed runs, by their number of processes."""
    found = {}

    def run(processes):
        if processes not in found:
            root = tmp_path_factory.mktemp("undisturbed")
            found[processes] = Attempts(forkserver, root, {"processes": processes})
            found[processes].attempt()
        return found[processes]

    return run
