"""The federated format: what may vary, and how each field is refused."""

import numpy as np
import pytest
import torch

from tests.formats.originals import save, tree
from trainops.files.errors import InvalidFields
from trainops.files.verify import verify
from trainops.kinds.federated.files.exchange import read_federated
from trainops.kinds.federated.files.file import Round


@pytest.fixture
def content():
    return tree("federated_mid_round")


def read(content, tmp_path):
    return read_federated(save(content, tmp_path / "last.pt"))


def refused(content, tmp_path):
    with pytest.raises(InvalidFields) as caught:
        read(content, tmp_path)
    return caught.value.errors


def test_everything_in_it_is_there(content, tmp_path):
    file = read(content, tmp_path)
    assert (file.version, file.run_name) == ("2.0", "experiment_001")
    assert (file.round.current, file.round.total, file.round.status) == (3, 3, "in_progress")
    assert len(file.server.parameters) == 15 and file.server.metrics.keys() == {"dice"}
    running, done = file.clients[0], file.clients[1]
    assert (running.epoch.current, running.epochs_done, running.steps) == (3, 3, 9)
    assert running.model_state and running.optimizer_state and running.final_parameters is None
    assert done.final_metrics["steps"] == 15 and len(done.final_parameters) == 15
    assert type(done.epsilon) is float and done.epsilon == pytest.approx(9.1136594)
    assert file.privacy.target_delta == 1e-5
    assert file.privacy.cumulative_sample_epsilon == pytest.approx(14.2089498)


def test_a_completed_round_whose_clients_say_otherwise_is_normal(tmp_path):
    content = tree("federated_completed")
    content["clients"][1]["epoch"]["status"] = "pending"
    file = read(content, tmp_path)
    assert file.round.status == "completed"
    assert [each.epoch.status for each in file.clients.values()] == ["in_progress", "pending"]


def test_clients_may_be_named_by_strings_of_digits(content, tmp_path):
    content["clients"] = {str(key): value for key, value in content["clients"].items()}
    content["clients"]["0"]["client_id"] = "0"
    assert list(read(content, tmp_path).clients) == [0, 1]


@pytest.mark.parametrize("key", ["first", "", "-1", "1.0", "²", -1, "9" * 30])
def test_other_names_of_clients_are_damage(content, tmp_path, key):
    content["clients"][key] = content["clients"].pop(1)
    errors = refused(content, tmp_path)
    assert "must be an integer or a string of digits" in "".join(errors.values())


def test_a_client_that_is_there_twice_is_damage(content, tmp_path):
    content["clients"]["1"] = content["clients"][1]
    assert "is there twice" in refused(content, tmp_path)["clients.1"]


def test_what_an_older_file_of_version_2_lacks_has_defaults(content, tmp_path):
    del content["server"]["best_dice"], content["server"]["metrics"]
    for client in content["clients"].values():
        client["epoch"] |= {"current": 0, "status": "pending"}
        for name in ("partial_metrics", "partial_privacy", "final_metrics", "num_samples"):
            del client[name]
    for name in ("sample_history", "user_history", "partial_round_epsilon"):
        del content["privacy"][name]
    file = read(content, tmp_path)
    assert (file.server.best_dice, dict(file.server.metrics)) == (0.0, {})
    client = file.clients[1]
    assert (client.loss_sum, client.epochs_done, client.epsilon, client.steps) == (0.0, 0, 0.0, 0)
    assert client.num_samples == 0
    assert file.privacy.sample_history == ()


def test_the_histories_of_what_was_spent_are_kept(content, tmp_path):
    content["privacy"]["sample_history"] = [(1.0, 1 / 3, 15), [1.0, 0.25, np.int64(15)]]
    content["privacy"]["user_history"] = [(0.5, 0.8, 1)]
    privacy = read(content, tmp_path).privacy
    assert privacy.sample_history == ((1.0, 1 / 3, 15), (1.0, 0.25, 15))
    assert privacy.user_history == ((0.5, 0.8, 1),)


@pytest.mark.parametrize(
    ("current", "total", "status", "remaining"),
    [
        (3, 3, "in_progress", 1),
        (3, 3, "completed", 0),
        (1, 3, "in_progress", 3),
        (5, 3, "completed", 0),
    ],
)
def test_how_many_rounds_remain(current, total, status, remaining):
    assert Round(current, total, status).remaining == remaining


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        (lambda c: c["round"].update(current=0), "round.current", "at least 1"),
        (
            lambda c: c["round"].update(status="done"),
            "round.status",
            "is 'done'; must be one of in_progress, completed",
        ),
        (lambda c: c.update(timestamp="yesterday"), "timestamp", "must be a moment in ISO 8601"),
        (lambda c: c.update(clients=[]), "clients", "is []; must be a dict"),
        (lambda c: c["server"].update(parameters=[1]), "server.parameters[0]", "is 1; must be"),
        (lambda c: c["server"].update(best_dice="high"), "server.best_dice", "is 'high'"),
        (lambda c: c["clients"][0].pop("epoch"), "clients[0].epoch", "is missing"),
        (
            lambda c: c["clients"][0].update(client_id="x"),
            "clients[0].client_id",
            "must be an integer",
        ),
        (lambda c: c["clients"][0].update(client_id=1), "clients[0].client_id", "is 1"),
        (
            lambda c: c["clients"][0]["epoch"].update(current=6),
            "clients[0].epoch.current",
            "is 6 of 5 epochs",
        ),
        (
            lambda c: c["clients"][0]["partial_metrics"].update(epochs_done=2),
            "clients[0].partial_metrics.epochs_done",
            "is 2 in epoch 3",
        ),
        (
            lambda c: c["clients"][1].update(final_parameters=None),
            "clients[1].final_parameters",
            "are missing; the client is completed",
        ),
        (
            lambda c: c["clients"][1].update(final_parameters=[np.zeros(3, np.float32)]),
            "clients[1].final_parameters",
            "of other shapes than server.parameters",
        ),
        (lambda c: c["privacy"].update(target_delta=2), "privacy.target_delta", "between 0 and 1"),
        (
            lambda c: c["privacy"].update(sample_history=[(1.0, 1.5, 3)]),
            "privacy.sample_history[0]",
            "noise multiplier, sample rate (0 to 1) and steps",
        ),
        (
            lambda c: c["privacy"].update(cumulative_user_epsilon=-1.0),
            "privacy.cumulative_user_epsilon",
            "at least 0",
        ),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found_and_what_is_allowed(
    content, tmp_path, change, where, words
):
    change(content)
    errors = refused(content, tmp_path)
    assert where in errors and words in errors[where]
    assert not verify(tmp_path / "last.pt").passed


def test_a_client_between_its_last_epoch_and_its_result_still_has_its_model(content, tmp_path):
    """The other tool says completed before it has cached what the client sends."""
    client = content["clients"][0]
    client["epoch"] |= {"current": 5, "status": "completed"}
    client["partial_metrics"]["epochs_done"] = 5
    assert isinstance(
        read(content, tmp_path).clients[0].model_state["model.2.0.conv.weight"], torch.Tensor
    )


def documented(content):
    """Return the documentation's "fresh training checkpoint": clients completed, and cleared."""
    for client in content["clients"].values():
        client |= {
            "epoch": {"current": 5, "total": 5, "status": "completed"},
            "model_state": None, "optimizer_state": None,
            "partial_metrics": {"loss_sum": 0.0, "epochs_done": 0},
            "partial_privacy": {"epsilon": 0.0, "steps": 0},
            "final_parameters": None, "final_metrics": None, "num_samples": 0,
        }  # fmt: skip
    content["round"] = {"current": 3, "total": 10, "status": "completed"}
    content["privacy"] |= {
        "sample_history": [(1.0, 0.1, 100)] * 3, "cumulative_sample_epsilon": 2.8,
        "partial_round_epsilon": 0.0,
    }  # fmt: skip
    return content


def test_the_documented_fresh_checkpoint_is_read(content, tmp_path):
    path = save(documented(content), tmp_path / "last.pt")
    assert verify(path).passed, verify(path)
    assert read_federated(path).clients[0].epoch.status == "completed"


def test_a_completed_client_within_a_round_needs_its_result(content, tmp_path):
    documented(content)["round"]["status"] = "in_progress"
    errors = refused(content, tmp_path)
    assert "are missing" in errors["clients[0].final_parameters"]


@pytest.mark.parametrize("status", ["completed", "in_progress"])
def test_an_extended_run_is_read_with_a_notice(status, content, tmp_path):
    content["round"] = {"current": 6, "total": 5, "status": status}
    path = save(content, tmp_path / "last.pt")
    report = verify(path)
    assert report.passed, report
    assert any("6 of 5 rounds: the run was extended" in check.detail for check in report.checks)
    assert read_federated(path).round.remaining == 0
