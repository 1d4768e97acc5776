"""The contract on drawn configs: stopped, killed or looked at, a federated run ends the same.

Every field of the schema is drawn. In each run of the suite every two values of two fields meet in
some config; `test_a_search_finds_no_difference` runs for the configured time.
"""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.engines.contract import (
    DATASET,
    DrawnCase,
    ending,
    is_rightly_refused,
    require_drawn,
    require_looking_changes_nothing,
    require_same_ending,
    small_pictures,
    small_table,
)
from tests.engines.drawing import Space, search
from tests.federated.runs import ServerLedger
from tests.thinning import quick_some
from trainops.kinds.federated.config import FederatedConfig
from trainops.runtime import reproducibility

TABLES = {"federated_tabular": small_table, "federated_images": small_pictures}
TABLE = {"dataset": DATASET, "hidden_sizes": [3]}
PRICES = {**TABLE, "target": "price"}
SEVERAL = {**TABLE, "target": "town", "more_datasets": ["ds_000000000000000b"]}
PICTURES = {"dataset": DATASET, "channels": 2, "hidden": 4}
PARAMETERS = {  # of each recipe; the first of them goes with everything
    "crowd": [{}, {"norm": True, "measured": True}, {"frozen": True}],
    "federated_tabular": [{**TABLE, "target": "town"}, PRICES],
    "federated_images": [PICTURES, {**PICTURES, "norm": "batch"}],
}
VALUES = {
    "seed": [0, 9],
    "device": ["auto", "cpu"],
    "threads": [1, 2],
    "checkpoint.every_steps": [None, 3],
    "checkpoint.every_seconds": [300.0, 1e-6],
    "checkpoint.least_seconds": [0.0, 1.0],
    "checkpoint.keep_last": [1, 3],
    "checkpoint.keep_best": [0, 1],
    "checkpoint.every_client_epochs": [1, 1000],
    "restart.max_restarts": [0, 3],
    "limits.cancel_timeout_seconds": [60.0, 5.0],
    "limits.stall_timeout_seconds": [1800.0, 30.0],
    "limits.max_duration_seconds": [None, 600.0],
    "limits.max_duration": [None, "10m"],
    "resources.gpu_memory_gb": [None, 1.0],
    "resources.memory_gb": [None, 1.0],
    "recipe": list(PARAMETERS),
    "parameters": [0, 1, 2],  # which of the recipe's
    "rounds": [1, 2, 3],
    "clients": [2, 3],
    "fraction": [0.6, 1.0],
    "min_clients": [1, 2],
    "local_epochs": [1, 2],
    "batch_size": [7, 8, 64],  # with 7, a client has a last batch of one example
    "learning_rate": [0.01, 0.1],
    "momentum": [0.0, 0.9],
    "weight_decay": [0.0, 0.1],
    "partition.alpha": [1.0, 10.0],
    "partition.shards_per_client": [1, 2],
    "partition.column": ["town", "floor"],  # of a table; images have their own
    "partition.min_examples": [1, 2],
    "server.learning_rate": [1.0, 0.1],
    "server.momentum": [0.9, 0.5],
    "server.beta_1": [0.9, 0.5],
    "server.beta_2": [0.99, 0.5],
    "server.tau": [1e-3, 0.1],
    "server.proximal": [0.1, 1.0],
    "server.trim": [0.1, 0.4],
    "privacy.target_epsilon": [None, 30.0, 200.0],
    "privacy.delta": [1e-5, 1e-2],
    "privacy.noise_multiplier": [None, 1.0, 3.0],
    "privacy.max_grad_norm": [1.0, 0.1],
    "privacy.user_noise_multiplier": [None, 1.0, 2.0],
    "privacy.max_update_norm": [1.0, 0.1],
    "monitor": ["val_loss", "train_loss"],
    "labels": [{}, {"0": "a"}, {"*": "client-{client}"}],
    "round_timeout": [None, 1000.0],
}
WITHOUT_EFFECT = (
    "checkpoint", "restart", "limits", "resources", "placement", "labels", "round_timeout",
)  # fmt: skip
OF_STRATEGIES = {  # which fields count with them
    "fedprox": ("learning_rate", "proximal"), "fedavgm": ("learning_rate", "momentum"),
    "fedadam": ("learning_rate", "beta_1", "beta_2", "tau"),
    "fedyogi": ("learning_rate", "beta_1", "beta_2", "tau"),
    "fedadagrad": ("learning_rate", "beta_1", "tau"), "trimmed_mean": ("learning_rate", "trim"),
}  # fmt: skip


def settled(drawn):
    """Make a valid config; see the config's `parse`, and what recipes can be partitioned by."""
    drawn = dict(drawn)
    has_samples, has_users = (
        drawn["privacy.mode"] in (level, "hybrid") for level in ("sample", "user")
    )
    of_samples = has_samples or drawn["batched_clients"]
    settle_data(drawn, number=0 if of_samples or has_users else drawn["parameters"])
    if has_users:
        settle_users(drawn)
    if drawn["privacy.target_epsilon"] is None or drawn["privacy.mode"] == "none":
        for name in ("noise_multiplier", "user_noise_multiplier"):
            drawn[f"privacy.{name}"] = drawn[f"privacy.{name}"] or 1.5
    if drawn["privacy.accountant"] == "prv" and drawn["privacy.mode"] == "hybrid":
        drawn["privacy.accountant"] = "rdp"  # the other takes seconds
    settle_placement(drawn, has_samples, has_users)
    if drawn["privacy.mode"] != "none":
        drawn["monitor"] = "val_loss"  # what was measured in training is not reported
    if drawn["device"] == "cpu":
        drawn["resources.gpu_memory_gb"] = None
    return drawn


def settle_data(drawn, number):
    if drawn["partition.by"] == "file":
        drawn["recipe"], drawn["parameters"] = "federated_tabular", SEVERAL
        return
    if drawn["partition.by"] == "column" and drawn["recipe"] != "federated_images":
        drawn["recipe"], drawn["parameters"] = "federated_tabular", PRICES
        return
    if drawn["recipe"] == "federated_images":
        drawn["partition.column"] = "client"
    of_recipe = PARAMETERS[drawn["recipe"]]
    drawn["parameters"] = of_recipe[number % len(of_recipe)]
    if drawn["parameters"] is PRICES and drawn["partition.by"] in ("dirichlet", "shards"):
        drawn["parameters"] = of_recipe[0]  # without classes there are no such shares


def settle_users(drawn):
    if drawn["server.strategy"] in ("median", "trimmed_mean"):
        drawn["server.strategy"] = "fedavg"
    if drawn["fraction"] < 1:
        drawn["min_clients"] = 1


def settle_placement(drawn, has_samples, has_users):
    if drawn["placement"] == "in_process":
        drawn["labels"], drawn["round_timeout"] = {}, None
    if has_samples or drawn["placement"] == "distributed":
        drawn["batched_clients"] = False
    if has_users and drawn["fraction"] < 1:
        drawn["labels"] = {}


SPACE = Space(FederatedConfig, VALUES, settled)
PAIRWISE = SPACE.pairwise()


class FederatedCase(DrawnCase):
    def new_ledger(self):
        return ServerLedger()


@pytest.fixture(autouse=True)
def _settings_again():
    yield
    reproducibility.set_determinism(deterministic=True, threads=1)


def require_contract(config, chance):
    with tempfile.TemporaryDirectory() as name:
        root, rng = Path(name), random.Random(chance)  # noqa: S311
        case = FederatedCase("federated", "drawn", config, (), TABLES.get(config["recipe"]))
        if is_rightly_refused(case, root):
            return
        require_drawn(case, root, rng)
        expected = require_looking_changes_nothing(case, root, rng, look)
        changes = changed(config, rng.choice(PAIRWISE))
        require_same_ending(expected, ending(case, root, changes), changes)


def changed(config, other):
    """Return what may be changed: of `other`, what does not count in this config.

    With privacy, the whole config names the noise.
    """
    changes = {name: other[name] for name in WITHOUT_EFFECT}
    if config["device"] == "cpu":
        changes["resources"] = {"memory_gb": 1.0}
    if config["batched_clients"] or (config["privacy"]["mode"] in ("user", "hybrid")):
        changes |= {"placement": "in_process", "labels": {}, "round_timeout": None}
    if config["privacy"]["mode"] != "none":
        return changes
    changes["privacy"] = {**other["privacy"], "mode": "none"}
    if config["optimizer"] != "sgd":
        changes["momentum"] = other["momentum"]
    counting = OF_STRATEGIES.get(config["server"]["strategy"], ("learning_rate",))
    of_server = {name: config["server"][name] for name in ("strategy", *counting)}
    changes["server"] = {**other["server"], **of_server}
    return changes


def look(job):
    job.state_dict()
    job.result()
    assert job.place and job.total_steps >= job.step


def test_every_field_is_varied():
    assert SPACE.unvaried(PAIRWISE) == []


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "is_refused"), [(7, True), (8, False)])
def test_with_batch_normalisation_batches_of_one_example_are_refused(batch_size, is_refused):
    """The clients have 23 and 22 examples."""
    config = {"recipe": "crowd", "parameters": PARAMETERS["crowd"][1], "clients": 2, "rounds": 2}
    config = FederatedConfig.parse(config | {"batch_size": batch_size}).model_dump(mode="json")
    case = FederatedCase("federated", "drawn", config, ())
    with tempfile.TemporaryDirectory() as name:
        assert is_rightly_refused(case, Path(name)) == is_refused
    require_contract(config, chance=batch_size)


@pytest.mark.slow
@pytest.mark.parametrize("number", quick_some(range(len(PAIRWISE)), every=16))
def test_a_drawn_federated_run_ends_where_an_undisturbed_one_does(number):
    require_contract(PAIRWISE[number], chance=number)


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_a_search_finds_no_difference():
    search(require_contract, config=SPACE.configs(), chance=st.integers(0, 100_000))
