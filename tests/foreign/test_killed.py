"""Programs that were not written for trainops, killed at random times, end as undisturbed."""

import difflib
import importlib.util
import os
import random
import sys
from pathlib import Path

import pytest
import torch

from apps.operations.attempts.children import ForkServer
from tests.foreign import plain_script, programs
from tests.foreign.killing import KilledAttempts
from tests.foreign.making import make_all, make_tiny_model
from tests.ranks.running import require_same_end
from tests.waiting import wait_until
from trainops.runtime import reproducibility

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ALONE = {
    "processes": 1, "log_every_steps": 3, "monitor": "train_loss",
    "checkpoint": {"every_steps": 2, "every_seconds": 1e9, "every_epochs": 1000},
}  # fmt: skip
SCRIPT = str(Path(__file__).parent / "reviews_script.py")
ARGUMENTS = [
    "--data-root=names", "--device=cpu", "--disable-dp", "--batch-size=32", "--epochs=14",
    "--hidden-size=32", "--test-every=5",
]  # fmt: skip
PROGRAMS = {
    "lightning": {"max_epochs": 3},
    "transformers": {"script": SCRIPT},
    "plain": {"arguments": ARGUMENTS},
}
NEEDED = {"lightning": "lightning", "transformers": "transformers", "plain": "opacus"}
MAX_CHANGED_LINES = 10
KILLS = [2, pytest.param(20, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)])]


@pytest.fixture(scope="module")
def forkserver():
    with pytest.MonkeyPatch.context() as patch:
        paths = [f"tests.foreign.programs:{name}" for name in programs.NAMES]
        patch.setenv("TRAINOPS_RECIPES", ",".join([os.environ["TRAINOPS_RECIPES"], *paths]))
        forkserver = ForkServer()
        forkserver.open()
        wait_until(lambda: forkserver.is_ready)
        yield forkserver
        forkserver.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = tmp_path_factory.mktemp("programs")
    make_all(root)
    if importlib.util.find_spec("transformers"):
        make_tiny_model(root / "tiny")
    return root


@pytest.fixture(scope="module")
def undisturbed(forkserver, directory, tmp_path_factory):
    """Return the undisturbed run of a program."""
    found = {}

    def run(name):
        if name not in found:
            config = config_of(name, directory)
            attempts = KilledAttempts(forkserver, tmp_path_factory.mktemp(name), config)
            found[name] = attempts.undisturbed()
        return found[name]

    return run


def config_of(name, directory):
    parameters = PROGRAMS[name] | {"directory": str(directory)}
    return ALONE | {"recipe": f"foreign_{name}", "parameters": parameters}


@pytest.mark.parametrize("num_kills", KILLS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_killed_at_random_times_ends_as_undisturbed(
    name, num_kills, forkserver, directory, undisturbed, tmp_path
):
    pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")
    expected = undisturbed(name)
    seed = random.SystemRandom().randrange(10**6)
    print(f"{name}: seed {seed}")  # noqa: T201 - to repeat it
    attempts = KilledAttempts(forkserver, tmp_path, config_of(name, directory))
    attempts.killed(random.Random(seed), num_kills, expected)
    print(*attempts.kills, sep="\n")  # noqa: T201
    assert len(attempts.kills) == num_kills
    assert all(each.exact for each in attempts.receipts), attempts.receipts
    require_same_end(attempts, expected)


def test_the_plain_script_has_few_changed_lines():
    pytest.importorskip("opacus", reason="opacus is not installed")
    text = plain_script.original()
    lines = difflib.ndiff(text.splitlines(), plain_script.changed(text).splitlines())
    assert sum(each.startswith("+ ") for each in lines) <= MAX_CHANGED_LINES


@pytest.mark.filterwarnings("ignore")  # of the script
def test_the_weights_of_the_plain_script_are_those_without_trainops(
    directory, undisturbed, monkeypatch
):
    pytest.importorskip("opacus", reason="opacus is not installed")
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "argv", [plain_script.SCRIPT, *ARGUMENTS])
    text = plain_script.changed(plain_script.original(), plain_script.SORTED)
    script = plain_script.module_of(text)
    models = []
    monkeypatch.setattr(script, "test", lambda model, *_, **__: models.append(model) or 0.0)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reproducibility.seed_all(7)
        script.main()
    finally:
        torch.set_num_threads(num_threads)
    final = undisturbed("plain").committed[-1]
    saved = torch.load(final.path / "model.pt", weights_only=True)  # noqa: TID251
    assert saved.keys() == models[-1].state_dict().keys()
    assert all(torch.equal(saved[key], each) for key, each in models[-1].state_dict().items())
