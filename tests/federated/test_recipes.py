"""The built-in recipes and partitioners."""

from dataclasses import fields

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from tests.engines.contract import DATASET, bits, small_table
from tests.federated.runs import ServerLedger, case, make_job, run_through
from trainops.kind import KINDS
from trainops.kinds.federated import context
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.context import NOT_USED
from trainops.kinds.federated.ingredients import Federation
from trainops.kinds.federated.parameter_layout import require_private
from trainops.kinds.federated.partition import partition
from trainops.kinds.federated.releases import Release
from trainops.kinds.federated.rng import Secrets
from trainops.kinds.federated.schedule import RoundSchedule
from trainops.learning.ingredients import Ingredients
from trainops.learning.tasks.phantoms import make_phantoms
from trainops.learning.tasks.unet import dice
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import ConfigError, InputError

OTHER = "ds_fedcba9876543210"


def table_job(root, **config):
    pq.write_table(small_table(), root / "one.parquet")
    pq.write_table(small_table().slice(0, 25), root / "other.parquet")
    engine = KINDS["federated"]
    parameters = {"dataset": DATASET, "target": "price", "hidden_sizes": [4],
                  **config.pop("parameters", {})}  # fmt: skip
    parsed = engine.parse_config(
        {"recipe": "federated_tabular", "parameters": parameters, **config}
    )
    return engine.make_job(parsed, {DATASET: root / "one.parquet", OTHER: root / "other.parquet"})


def sizes(job):
    return [len(part) for part in job.context.parts]


@pytest.mark.parametrize("by", ["iid", "dirichlet", "shards"])
@pytest.mark.parametrize("clients", [1, 10])
def test_every_example_lies_with_exactly_one_client(by, clients):
    job = make_job(recipe="federated_digits", clients=clients, partition={"by": by, "alpha": 0.3})
    whole = torch.cat(job.context.parts).sort().values
    assert torch.equal(whole, torch.arange(1438)) and len(job.context.parts) == clients
    again = make_job(recipe="federated_digits", clients=clients, partition={"by": by, "alpha": 0.3})
    assert all(map(torch.equal, job.context.parts, again.context.parts))


def test_shards_give_each_client_few_classes():
    job = make_job(recipe="federated_digits", clients=10, partition={"by": "shards"})
    owners = job.context.federation.classes.owners
    assert all(len(owners[part].unique()) <= 4 for part in job.context.parts)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("brings", "named"),
    [(["optimizers"], "optimizers"), (["schedulers"], "schedulers"),
     (["optimizers", "schedulers"], "optimizers and schedulers")], ids=str,
)  # fmt: skip
@pytest.mark.parametrize("mode", ["none", "hybrid"])
def test_own_optimizers_and_schedules_are_refused_before_anything_is_spent(
    brings, named, at_once, mode
):
    """They were left unused without a word."""
    if at_once and mode == "hybrid":
        mode = "user"
    parameters = {f"own_{each}": True for each in brings}
    ledger = ServerLedger()
    with pytest.raises(InputError, match=f"its own {named}; clients train by the config's"):
        make_job(mode, ledger, parameters=parameters, batched_clients=at_once)
    assert not ledger.spent()


@pytest.mark.parametrize("mode", ["none", "sample"])
def test_what_was_begun_before_continues_once_the_recipe_is_without_them(mode, monkeypatch):
    """The refusal of a resume says so."""
    own = {"own_optimizers": True, "own_schedulers": True}
    with monkeypatch.context() as older:
        older.setattr(context, "NOT_USED", ())
        begun = make_job(mode, ServerLedger(), parameters=own)
        begun.advance()
        state, streams = freeze(begun.state_dict()), reproducibility.state_dict()
        begun.advance()
    with pytest.raises(InputError, match="change the recipe, then resume it"):
        make_job(mode, ServerLedger(), parameters=own)
    resumed = make_job(mode, ServerLedger(begun.ledger.releases()), parameters={})
    resumed.load_state_dict(state)
    reproducibility.load_state_dict(streams)
    resumed.advance()
    if mode == "none":  # a changed recipe has other names of releases, and so another noise
        assert bits(resumed.state_dict()) == bits(begun.state_dict())
    assert resumed.step == begun.step == 2


def test_every_ingredient_is_made_use_of_or_refused():
    """A new one must be thought of here, too."""
    used = {"model", "train", "validation", "loss", "measures", "loss_factor", "constants",
            "description"}  # fmt: skip
    assert {each.name for each in fields(Ingredients)} == used | set(NOT_USED)
    assert {each.name for each in fields(Federation)} == {"ingredients", "classes", "groups"}


def test_a_smaller_alpha_is_more_uneven():
    def unevenness(alpha):
        job = make_job(recipe="federated_digits", partition={"by": "dirichlet", "alpha": alpha})
        return torch.tensor(sizes(job)).double().std()

    assert unevenness(0.1) > 2 * unevenness(100.0)


@pytest.mark.slow
def test_an_alpha_that_leaves_a_client_without_examples_is_refused():
    with pytest.raises(InputError, match="a larger alpha, or fewer clients"):
        make_job(recipe="federated_digits", clients=60,
                 partition={"by": "dirichlet", "alpha": 0.01})  # fmt: skip


def test_by_column_each_value_is_a_client(tmp_path):
    job = table_job(tmp_path, partition={"by": "column", "column": "floor", "min_examples": 1})
    assert len(sizes(job)) == 5 and sum(sizes(job)) == 32
    names = job.state_dict()["state"]["partition"]["names"]
    floors = small_table()["floor"].cast("string").to_pylist()
    assert {*names} <= {*floors, "missing"} and len({*names}) == 5
    run_through(job)
    with pytest.raises(InputError, match="got 'cellar'; these examples can be grouped by"):
        table_job(tmp_path, partition={"by": "column", "column": "cellar"})


def test_rounds_of_more_clients_than_a_column_comes_to_are_refused(tmp_path):
    partition = {"by": "column", "column": "floor", "min_examples": 1}
    with pytest.raises(InputError, match="at most the clients, of which there are 5 by column"):
        table_job(tmp_path, partition=partition, min_clients=6)


def test_by_file_each_table_is_a_client(tmp_path):
    job = table_job(tmp_path, partition={"by": "file"}, parameters={"more_datasets": [OTHER]})
    assert len(sizes(job)) == 2 and sum(sizes(job)) == 52
    assert job.state_dict()["state"]["partition"]["names"] == [DATASET, OTHER]


def with_further_table(root, other):
    pq.write_table(small_table(), root / "one.parquet")
    pq.write_table(other, root / "other.parquet")
    engine = KINDS["federated"]
    parsed = engine.parse_config({
        "recipe": "federated_tabular", "partition": {"by": "file"},
        "parameters": {"dataset": DATASET, "target": "price", "hidden_sizes": [4],
                       "more_datasets": [OTHER]},
    })  # fmt: skip
    return engine.make_job(parsed, {DATASET: root / "one.parquet", OTHER: root / "other.parquet"})


@pytest.mark.parametrize("column", ["size", "price"])
def test_whole_numbers_in_one_table_and_decimals_in_another_are_one_column(column, tmp_path):
    other = small_table().slice(0, 25)
    place = other.column_names.index(column)
    whole = pa.array(range(25), pa.int64())
    assert small_table()[column].type == pa.float64()
    job = with_further_table(tmp_path, other.set_column(place, column, whole))
    assert len(sizes(job)) == 2
    run_through(job)


@pytest.mark.parametrize("column", ["size", "price"])
def test_numbers_in_one_table_and_words_in_another_are_refused_by_name(column, tmp_path):
    other = small_table().slice(0, 25)
    place = other.column_names.index(column)
    words = pa.array(["few", "many", "all", "none", "one"] * 5)
    with pytest.raises(InputError) as found:
        with_further_table(tmp_path, other.set_column(place, column, words))
    message = found.value.errors["parameters.more_datasets"]
    assert ("size is numbers" if column == "size" else "the target is of several kinds") in message


def test_clients_of_a_column_are_named_only_where_no_privacy_is_kept(tmp_path):
    by_column = {"partition": {"by": "column", "column": "floor", "min_examples": 1}}
    privacy = {"mode": "sample", "noise_multiplier": 1.0}
    job = table_job(tmp_path, privacy=privacy, monitor="val_loss", **by_column)
    assert job.state_dict()["state"]["partition"] == {"examples": sizes(job)}


def test_a_column_called_file_is_a_column(tmp_path):
    table = small_table().rename_columns(
        ["file" if name == "floor" else name for name in small_table().column_names]
    )
    pq.write_table(table, tmp_path / "one.parquet")
    engine = KINDS["federated"]
    for by, count in ({"by": "column", "column": "file"}, 5), ({"by": "file"}, 1):
        parsed = engine.parse_config({
            "recipe": "federated_tabular", "partition": {**by, "min_examples": 1},
            "parameters": {"dataset": DATASET, "target": "price", "hidden_sizes": [4]},
        })  # fmt: skip
        assert len(sizes(engine.make_job(parsed, {DATASET: tmp_path / "one.parquet"}))) == count


def test_classes_of_a_table_can_be_partitioned(tmp_path):
    config = {"partition": {"by": "dirichlet", "alpha": 5.0, "min_examples": 1}, "clients": 3}
    job = table_job(tmp_path, parameters={"target": "town"}, monitor="val_accuracy", **config)
    assert job.context.federation.classes.names == ("A", "B", "C", "D")
    with pytest.raises(InputError, match="have no classes; allowed: iid, file, column"):
        table_job(tmp_path, **config)


def test_tables_of_other_columns_are_refused_at_submission():
    config = FederatedConfig.parse({"recipe": "federated_tabular", "parameters": {
        "dataset": DATASET, "target": "price", "more_datasets": [OTHER]}})  # fmt: skip
    columns = [{"name": name, "type": "number"} for name in ("price", "size")]
    problems = config.check_columns({DATASET: columns, OTHER: columns[:1]})
    assert "missing: size" in problems["parameters.more_datasets"]
    assert config.dataset_ids() == [DATASET, OTHER]
    by_column = config.model_copy(update={"partition": config.partition.model_copy(
        update={"by": "column", "column": "town"})})  # fmt: skip
    assert (
        "'town'; not in the dataset"
        in by_column.check_columns({DATASET: columns})["partition.column"]
    )


@pytest.mark.parametrize("mode", ["sample", "user", "hybrid"])
def test_batch_normalisation_is_refused_with_privacy_and_the_fix_named(mode):
    parameters = {"network": "cnn", "norm": "batch"}
    with pytest.raises(InputError, match=r"batch normalisation \(1, 4\).*GroupNorm.*norm = group"):
        make_job(mode, recipe="federated_digits", parameters=parameters)
    make_job(mode, recipe="federated_digits", parameters={**parameters, "norm": "group"})


def test_a_run_that_no_client_takes_part_in_is_refused():
    with pytest.raises(InputError, match="by chance none of 4 clients takes part in any of 3 r"):
        make_job("user", ServerLedger(), fraction=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_numbers_too_rough_to_clip_are_refused_with_privacy(dtype):
    with pytest.raises(InputError, match=f"got 'user'; parameters of {dtype}.*float32 and float64"):
        require_private(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to(dtype)), "user")
    require_private(nn.Linear(2, 2).double(), "user")
    frozen = nn.Linear(2, 2).to(dtype).requires_grad_(False)
    require_private(nn.Sequential(nn.Linear(2, 2), frozen), "user")


@pytest.mark.parametrize(
    ("config", "field", "message"),
    [
        ({"privacy": {"mode": "sample"}}, "privacy.noise_multiplier", "without target_epsilon"),
        ({"privacy": {"mode": "user"}}, "privacy.user_noise_multiplier", "without target_epsilon"),
        ({"privacy": {"mode": "user", "target_epsilon": 0.05}}, "privacy.target_epsilon",
         "got 0.05; even a noise multiplier of 20.*or more, or fewer rounds"),
        ({"privacy": {"mode": "user", "user_noise_multiplier": 1.0},
          "server": {"strategy": "median"}}, "server.strategy", "requires a mean"),
        ({"privacy": {"mode": "user", "user_noise_multiplier": 1.0}, "fraction": 0.5,
          "min_clients": 3}, "min_clients", "independently"),
        ({"min_clients": 11}, "min_clients", "at most the number of clients, 10"),
        ({"partition": {"by": "column"}}, "partition.column", "required"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_together_is_reported_at_submission(config, field, message):
    import re

    with pytest.raises(ConfigError) as found:
        FederatedConfig.parse({"recipe": "crowd", **config})
    assert re.search(message, found.value.errors[field]), found.value.errors


@pytest.mark.slow
def test_the_noise_that_a_budget_asks_for_is_found_and_just_enough():
    job = make_job("sample", privacy={"noise_multiplier": None, "target_epsilon": 6.0})
    points = run_through(job)
    assert "reason" not in job.result() and len(points) == 3
    assert 5.9 < job.noise_accounting.budget.epsilon <= 6.0


def test_a_budget_for_examples_that_no_noise_keeps_is_refused():
    privacy = {"noise_multiplier": None, "target_epsilon": 0.01}
    with pytest.raises(InputError, match=r"got 0\.01; even"):
        make_job("sample", privacy=privacy)


def test_a_given_noise_that_the_budget_has_no_room_for_is_refused():
    budget = {"noise_multiplier": 0.5, "target_epsilon": 1.0}
    with pytest.raises(InputError) as found:
        make_job("sample", privacy=budget)
    assert "comes to" in found.value.errors["privacy.target_epsilon"]
    spent = Release(noise="0" * 32, step=9, round=2, client=0, level="sample",
                  noise_multiplier=0.5, sample_rate=0.5, steps=9)  # fmt: skip
    job = make_job("sample", ServerLedger([spent]), privacy=budget)
    assert job.progress.is_spent, "what has begun is not refused: it is over"


def test_a_model_without_gradients_of_single_examples_is_refused_before_anything_is_spent():
    ledger = ServerLedger()
    with pytest.raises(InputError) as found:
        make_job("sample", ledger, parameters={"decides": True})
    assert "no gradients of single examples" in found.value.errors["privacy.mode"]
    assert not ledger.spent()
    make_job("user", ledger, parameters={"decides": True})


def test_seven_of_a_hundred_clients_are_seven():
    config = case(fraction=0.07, clients=100).config
    schedule = RoundSchedule(FederatedConfig.parse(config), 100, Secrets(b"", 7))
    assert len(schedule.chosen(1)) == schedule.clients_per_round == 7


def test_user_level_privacy_with_few_clients_is_warned_of():
    few = make_job("user", clients=4)
    run_through(few)
    assert "fewer than 10 " in few.result()["warnings"][0]
    assert not make_job("none", clients=4).result()["warnings"]


def warnings_of_trimmed(trim, **config):
    server = {"strategy": "trimmed_mean", "trim": trim}
    return make_job("none", server=server, **config).result()["warnings"]


def test_a_trimmed_mean_that_trims_nothing_is_a_warning():
    (of_four,) = warnings_of_trimmed(0.1, clients=4)
    assert of_four.startswith("server.trim 0.1 leaves out none of 4 clients per round")
    assert of_four.endswith("the smallest trim that leaves one out at each end is 0.25")
    (of_three,) = warnings_of_trimmed(0.3, clients=12, fraction=0.25)
    assert of_three.endswith("is 0.3334")
    assert not warnings_of_trimmed(0.25, clients=4)
    assert not warnings_of_trimmed(0.3334, clients=12, fraction=0.25)
    (of_two,) = warnings_of_trimmed(0.49, clients=2)
    assert of_two.endswith("3 clients per round or more are needed")


def test_a_metric_that_is_not_measured_is_refused_as_the_monitor():
    with pytest.raises(InputError, match="allowed: val_loss, val_accuracy"):
        make_job("sample", monitor="train_loss")


def test_parts_smaller_than_asked_for_are_refused():
    config = FederatedConfig.parse(
        {"recipe": "crowd", "clients": 9, "partition": {"by": "shards", "min_examples": 5}}
    )
    with pytest.raises(InputError, match="a client has 4 of 45 examples"):
        partition(config, make_job().context.federation)


@pytest.mark.parametrize("by", ["iid", "dirichlet", "shards"])
def test_more_clients_than_there_are_examples_for_are_refused_at_once(by):
    config = FederatedConfig.parse(
        {"recipe": "crowd", "clients": 100_000, "partition": {"by": by, "min_examples": 5}}
    )
    with pytest.raises(InputError, match="got 100000; there are 45 examples"):
        partition(config, make_job().context.federation)


def test_phantoms_are_a_function_of_their_seed_and_have_an_organ():
    one, other = (make_phantoms(12, 32, noise=0.1, sites=3, seed=4) for _ in range(2))
    assert (one.images == other.images).all()
    areas = one.masks.mean(axis=(1, 2))
    assert (areas > 0.005).all() and (areas < 0.3).all() and set(one.masks.ravel()) == {0.0, 1.0}


def test_dice_is_one_for_the_mask_itself_and_nearly_nothing_beside_it():
    mask = torch.zeros(1, 1, 8, 8)
    mask[..., :4, :] = 1
    assert dice(mask * 2 - 1, mask).item() == 1.0
    assert dice(1 - 2 * mask, mask).item() < 0.02


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_u_net_learns_to_outline_the_organ():
    job = make_job(
        recipe="federated_segmentation", parameters={"images": 120, "size": 24}, optimizer="adam",
        learning_rate=0.01, batch_size=8, rounds=8, local_epochs=3, clients=4,
        partition={"by": "column", "column": "site"}, monitor="val_dice", mode="max",
        server={"strategy": "fedavg"},
    )  # fmt: skip
    run_through(job)
    assert job.progress.best.metric > 0.7
