"""The code of the tab Files, run on the files of real checkpoints."""

import json

import pytest
import torch

from apps.checkpoints.models import Checkpoint
from apps.dashboard import checkpoint_files
from tests.engines.contract import Case, ScriptedSupervisor, attempt
from trainops.recipes import recipes
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.loop import Succeeded

pytestmark = pytest.mark.slow

SHORT = {
    "digits": {"epochs": 1},
    "federated_digits": {"rounds": 1},
    "grid_world": {"environment_steps": 600},
    "digits_loop": {"parameters": {"epochs": 1}},
}


@pytest.mark.parametrize("name", SHORT)
def test_the_code_loads_real_files(name, tmp_path, monkeypatch):
    recipe = recipes()[name]
    final = _final_checkpoint(tmp_path, recipe.kind, {**recipe.example, **SHORT[name]})
    manifest = json.loads((final.path / "manifest.json").read_text())
    checkpoint = Checkpoint(
        operation_id="op_x", step=manifest["step"], state={}, manifest=manifest["artifacts"]
    )
    found = checkpoint_files.source(checkpoint, "", recipe.kind, "")
    assert [each.format for each in found.snippets] == ["weights", "archive", "state"]
    for file in found.files:
        download = checkpoint_files.download_name(checkpoint, file.artifact.name)
        (tmp_path / download).write_bytes((final.path / file.artifact.name).read_bytes())
    monkeypatch.chdir(tmp_path)
    state = CheckpointStore(tmp_path, identity={}).load(Candidate(final.path, final.digest))
    loaded = {"model": _module_of(state["model"])}
    for snippet in found.snippets:
        exec(snippet.code, loaded)  # noqa: S102 - the code that the page shows
    assert loaded["content"] is not None
    assert loaded["state"] == json.loads((final.path / "state.json").read_text())


def _final_checkpoint(root, kind, config):
    supervisor = ScriptedSupervisor()
    outcome = attempt(Case(kind, "short", config, ()), root / "run", supervisor)
    assert isinstance(outcome, Succeeded), outcome
    return supervisor.checkpoints[-1]


def _module_of(weights):
    """Return a module that takes weights of these names and shapes."""
    root = torch.nn.Module()
    for name, value in weights.items():
        module = root
        *path, last = name.split(".")
        for each in path:
            if each not in dict(module.named_children()):
                module.add_module(each, torch.nn.Module())
            module = module.get_submodule(each)
        module.register_buffer(last, torch.zeros_like(value))
    return root
