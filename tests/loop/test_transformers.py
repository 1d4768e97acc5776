"""A Hugging Face Trainer ends as by its own train(), also when it is stopped and resumed."""

import random
from dataclasses import replace

import pytest
import torch
from torch.utils.data import Sampler

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.runtime import reproducibility
from trainops.runtime.errors import NotExact
from trainops.runtime.loop import Failed

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers", reason="the extra transformers is not installed")
SEED = 7  # that of the contract


def case(device="auto", **parameters):
    config = {"recipe": "hugging", "parameters": parameters, "log_every_steps": 2, "threads": 1}
    config["device"] = device
    return Case("loop", "hugging", config | {"monitor": "eval_loss"}, ())


LIMITED = {"limits": {"max_duration": "2ba"}, "log_every_steps": 1}
ORDERED = {"train_sampling_strategy": "sequential"}
CASES = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 4, "max_grad_norm": 0.1, "warmup_steps": 2},
    "by-batches": {"gradient_accumulation_steps": 4},
    "by-steps": {"eval_strategy": "steps", "eval_steps": 3, "max_steps": 8},
    "half-precision": {"bf16": True, "lr_scheduler_type": "cosine"},
    "unclipped": {"max_grad_norm": 0.0, "weight_decay": 0.1, "optim": "adafactor"},
    "started": {"eval_strategy": "no", "eval_on_start": True, "bf16_full_eval": True},
    "noise": {
        "neftune_noise_alpha": 5.0,
        "activation_checkpointing": True,
        "include_for_metrics": ["inputs", "loss"],
    },
    "greedy": {
        "lr_scheduler_type": "greedy",
        "num_train_epochs": 5,
        "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5, "smooth": True},
    },
    "plain-iterable": {
        "gradient_accumulation_steps": 4,
        "max_steps": 7,
        "eval_strategy": "steps",
        "eval_steps": 2,
    },
    "stateful-iterable": {"gradient_accumulation_steps": 4, "max_steps": 5},
    "sized-iterable": {"gradient_accumulation_steps": 4, "max_grad_norm": 0.1},
    "no-evaluation": {"eval_strategy": "no"},
    "plateau": {
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "eval_strategy": "steps",
        "eval_steps": 2,
        "metric_for_best_model": "accuracy",
        "lr_scheduler_kwargs": {"patience": 1},
        "num_train_epochs": 3,
        "eval_on_start": True,
    },
}


UNDECODABLE = {"gradient_accumulation_steps": 4}


def evenly(tensor, low=0.0, high=1.0, **_options):
    return tensor.copy_(torch.linspace(low, high, tensor.numel()).reshape(tensor.shape))


def flow_of(name):
    kind, is_iterable, _ = name.partition("-iterable")
    return kind if is_iterable else ""


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_those_of_trainer_train(monkeypatch, tmp_path, name):
    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import make

    given = {"dropout": 0.0, "arguments": ORDERED | CASES[name], "iterable": flow_of(name)}
    given["counts_items"] = name != "by-batches"
    if name == "noise":  # of the streams, which the Trainer's loader draws from, too
        monkeypatch.setattr(torch.Tensor, "uniform_", evenly)
    done = undisturbed(case(device="cpu", **given), tmp_path)
    reproducibility.seed_all(SEED)
    trainer = make(None, Parameters.parse(given))
    trainer.train()
    saved = torch.load(done.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(saved[key], value), key
    if name == "plateau":
        rates = {each.metrics.get("learning_rate", 0.01) for each in done.progress}
        assert len(rates) > 2
    evaluated = [each for each in trainer.state.log_history if "eval_loss" in each]
    points = [each.metrics for each in done.progress if "eval_loss" in each.metrics]
    for one, other in zip(evaluated, points, strict=True):
        for key in ("eval_loss", "eval_accuracy", "eval_inputs", "eval_losses"):
            assert one.get(key) == other.get(key), key
            assert key in one or name != "noise"


@pytest.mark.parametrize("name", CASES)
def test_a_trainer_stopped_or_killed_anywhere_ends_the_same(tmp_path, name):
    found, rng = case(arguments=CASES[name], iterable=flow_of(name)), random.Random(name)
    expected = undisturbed(found, tmp_path)
    steps = sorted({each.step for each in expected.progress})[:-1]
    require_stop_changes_nothing(found, tmp_path / "all", expected, steps)
    for at in rng.sample(steps[1:], 3):
        require_stop_changes_nothing(found, tmp_path / f"stop{at}", expected, [at - 1, at])
        require_death_changes_nothing(found, tmp_path / f"death{at}", expected, at, 2)


def test_examples_that_cannot_be_loaded_are_skipped_and_counted(tmp_path):
    """The weights are those of Trainer.train() with the other examples, after any stop."""
    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import make

    given = {"dropout": 0.0, "arguments": ORDERED | UNDECODABLE, "damaged": True}
    found = case(device="cpu", skip_undecodable=True, **given)
    expected = undisturbed(found, tmp_path)
    reproducibility.seed_all(SEED)
    trainer = make(None, Parameters.parse(given))
    trainer.train()
    saved = torch.load(expected.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(saved[key], value), key
    for count in ("train_undecodable", "validation_undecodable"):
        assert [each[count] for each in expected.curve.values() if count in each] == [1, 2]
    evaluated = [each["eval_loss"] for each in trainer.state.log_history if "eval_loss" in each]
    points = [each["eval_loss"] for each in expected.curve.values() if "eval_loss" in each]
    assert points == evaluated
    require_stop_changes_nothing(found, tmp_path / "stops", expected, [1, 3, 4, 5])


@pytest.fixture
def own_accelerator(monkeypatch):
    """Accelerate takes arguments of the first Trainer of a process for all of them."""
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "no")  # is set by TrainingArguments
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch, in torch
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of torch's compiler
def test_a_compiled_model_ends_as_with_trainer_train_and_is_resumed_exactly(
    own_accelerator, tmp_path
):
    from accelerate.utils import is_compiled_module

    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import make

    arguments = ORDERED | {  # that of the default, inductor, takes two minutes beside other tests
        "torch_compile_backend": "aot_eager", "dataloader_drop_last": True, "num_train_epochs": 1,
    }  # fmt: skip
    found = case(device="cpu", dropout=0.0, arguments=arguments)
    expected = undisturbed(found, tmp_path)
    reproducibility.seed_all(SEED)
    trainer = make(None, Parameters.parse(found.config["parameters"]))
    trainer.train()
    assert is_compiled_module(trainer.model_wrapped)
    saved = torch.load(expected.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(saved[key], value), key
    require_stop_changes_nothing(found, tmp_path / "stop", expected, [3])


@pytest.mark.parametrize("is_random", [True, False])
def test_streams_are_set_for_datasets_that_may_draw(monkeypatch, tmp_path, is_random):
    from tests.loop.hugging_trainer import make
    from trainops.kinds.loop.transformers import transformers_loop

    started = []
    monkeypatch.setattr("trainops.kinds.loop.examples.start_streams", started.append)
    loop = transformers_loop(make, is_random=is_random)
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    undisturbed(case(arguments={"max_steps": 1}), tmp_path)
    assert bool(started) == is_random


def test_batches_of_an_evaluation_on_start_do_not_count_for_max_duration(tmp_path):
    found = case(arguments={"eval_on_start": True, "eval_strategy": "no"})
    done = undisturbed(replace(found, config=found.config | LIMITED), tmp_path)
    losses = [each for each in done.progress if "train_loss" in each.metrics]
    assert done.progress[-1].step == 5 and len(losses) == 2  # 3 of the evaluation


def test_an_iterable_dataset_without_a_state_is_refused_where_exact_is_required(tmp_path):
    found = case(iterable="plain", arguments={"max_steps": 2})
    required = replace(found, config=found.config | {"exact": "required"})
    outcome = attempt(required, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NotExact), outcome
    assert "train: the loader has no state" in str(outcome.error)


def trained_by_hand(monkeypatch, tmp_path, trainer):
    from trainops.kinds.loop.transformers import transformers_loop

    loop = transformers_loop(lambda *_: trainer)
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    undisturbed(case(device="cpu"), tmp_path)


def test_batches_are_of_similar_lengths_with_group_by_length(monkeypatch, tmp_path):
    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import Lines, make

    arguments = {"train_sampling_strategy": "group_by_length", "eval_strategy": "no"}
    trainer = make(None, Parameters.parse({"arguments": arguments}))
    spreads = []

    class Uneven(Lines):
        def __getitem__(self, index):
            return {"input_ids": self.lines[index][: 2 + index * 5 % 7], "labels": index}

    def collate(examples):
        lengths = [len(each["input_ids"]) for each in examples]
        spreads.append(max(lengths) - min(lengths))
        ids = torch.stack([each["input_ids"][:2] for each in examples])
        return {"input_ids": ids, "labels": ids}

    trainer.train_dataset, trainer.data_collator = Uneven(0, 22), collate
    trained_by_hand(monkeypatch, tmp_path, trainer)
    assert len(spreads) == 12 and max(spreads) <= 2


def test_special_tokens_are_those_of_the_tokenizer_and_activations_are_checkpointed(
    monkeypatch, tmp_path
):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import make

    arguments = {"activation_checkpointing": True, "eval_strategy": "no", "max_steps": 1}
    trainer = make(None, Parameters.parse({"arguments": arguments}))
    words = Tokenizer(models.WordLevel({"a": 0, "[PAD]": 5}, unk_token="a"))
    trainer.processing_class = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    trained_by_hand(monkeypatch, tmp_path, trainer)
    assert trainer.model.config.pad_token_id == 5
    assert trainer.model.is_activation_checkpointing


class Backwards(Sampler):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number // 2

    def __iter__(self):
        return iter(range(self.number - 1, 0, -2))


def test_a_sampler_of_the_trainer_gives_the_order(monkeypatch, tmp_path):
    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import make
    from trainops.kinds.loop.transformers import transformers_loop

    class Own(transformers.Trainer):
        def _get_train_sampler(self, train_dataset):
            return Backwards(len(train_dataset))

    given = {"dropout": 0.0, "arguments": CASES["accumulated"]}

    def make_own(run, parameters):
        trainer = make(run, parameters)
        trainer.__class__ = Own
        return trainer

    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: transformers_loop(make_own))
    found = case(device="cpu", **given)
    done = undisturbed(found, tmp_path)
    reproducibility.seed_all(SEED)
    trainer = make_own(None, Parameters.parse(given))
    trainer.train()
    assert done.progress[-1].step == trainer.state.global_step + 2 * 3  # of evaluations
    saved = torch.load(done.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(saved[key], value), key
    require_stop_changes_nothing(found, tmp_path / "stops", done, [1, 4])
