"""What clients train with: one model that they take turns at, their examples, and the strategy."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.federated.accounting import epsilon
from trainops.kinds.federated.implementation import losses_of, many_models
from trainops.kinds.federated.ingredients import Federation
from trainops.kinds.federated.limits import Infeasible, share_of_budget
from trainops.kinds.federated.noise import find_for
from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.parameter_layout import ParameterLayout, require_private
from trainops.kinds.federated.partition import partition
from trainops.kinds.federated.plain import Losses, Models
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.kinds.federated.rng import Secrets
from trainops.kinds.federated.schedule import RoundSchedule
from trainops.kinds.federated.strategies.known import make_strategy
from trainops.learning.ingredients import Context
from trainops.learning.mean_metrics import MeanMetrics
from trainops.learning.single_examples import has_batch_norm, require_trainable
from trainops.runtime import generators, reproducibility
from trainops.runtime.errors import InputError

EVALUATED_AT_ONCE = 512
NOT_USED = ("optimizers", "schedulers")  # ingredients that are for training in one place


class FederatedContext:
    """Everything of a federated run that no round changes, apart from the strategy's memory."""

    def __init__(
        self,
        config: FederatedOptions,
        inputs: Mapping[str, Path],
        device: torch.device,
        secrets: Secrets,
        constants: Mapping[str, Any],
    ) -> None:
        self.config, self.device, self.secrets = config, device, secrets
        self.federation = _build(config, Context(config.seed, inputs, constants))
        self.ingredients = self.federation.ingredients
        self.model = self.ingredients.model.to(device)
        if config.is_private:
            require_private(self.model, config.privacy.mode)
        self.train = self.ingredients.train.to(device)
        validation = self.ingredients.validation
        self.validation = validation.to(device) if validation else None
        self.layout = ParameterLayout(self.model)
        self.parts = partition(config, self.federation)
        self.sizes = [len(part) for part in self.parts]
        _require_enough(config, len(self.parts))
        self.schedule = RoundSchedule(config, len(self.parts), secrets)
        _require_somebody(self.schedule)
        self.strategy = make_strategy(config.server, self.layout.vector())
        self.noise_multiplier = self._noise_multiplier()
        self._require_monitor()
        self._require_no_generators()
        if has_batch_norm(self.model):
            visited = zip(self.sizes, self.schedule.visits(), strict=True)
            sizes = {f"client {n}": size for n, (size, visits) in enumerate(visited) if visits}
            self.model.train()  # as in the training of each client
            require_trainable(self.model, self.train, config.batch_size, sizes)

    def objects(self) -> dict[str, Any]:
        """Return what the recipe made."""
        made = self.ingredients
        return {
            "model": self.model, "loss": made.loss, "measures": made.measures,
            "train": self.train, "validation": self.validation,
        }  # fmt: skip

    @cached_property
    def many_models(self) -> Callable[[Tensor], Models]:
        """What makes models of rows. Raises ValueError for a model that cannot be stacked."""
        return many_models(self.layout)

    @cached_property
    def losses(self) -> Losses:
        """What gives each example's own loss."""
        return losses_of(self.ingredients.loss)

    def new_mean_metrics(self) -> MeanMetrics:
        return MeanMetrics(["loss", *self.ingredients.measures], self.device)

    def sampling(self, client: int) -> tuple[float, int]:
        """Return how likely each example is to be in a step, and the steps of a local epoch."""
        count, size = self.sizes[client], self.config.batch_size
        return min(1.0, size / count), -(-count // size)

    def validation_batches(self) -> tuple[Tensor, ...]:
        """Return the indices of the server's own examples by batches; () where there are none."""
        if self.validation is None:
            return ()
        return tuple(torch.arange(len(self.validation)).split(EVALUATED_AT_ONCE))

    @torch.no_grad()
    def validate(self, indices: Tensor, averages: MeanMetrics) -> None:
        """Add the model's loss and measures over these of the server's own examples."""
        if self.validation is None:
            raise ValueError("the server has no examples")
        self.model.eval()
        inputs, targets = self.validation.batch(indices.to(self.device))
        outputs = self.model(*inputs)
        measures = self.ingredients.measures.values()
        loss = self.ingredients.loss(outputs, targets) * len(indices)
        averages.add([loss, *(m(outputs, targets).sum() for m in measures)], len(indices))

    def in_units(self, means: Mapping[str, float], prefix: str) -> dict[str, float]:
        """Return the means under their public names, the loss in the units people read."""
        factors = {"loss": self.ingredients.loss_factor}
        return {f"{prefix}_{name}": mean * factors.get(name, 1.0) for name, mean in means.items()}

    def _noise_multiplier(self) -> float:
        """Return the noise of each example's steps; found where a budget says how much."""
        privacy = self.config.privacy
        if not self.config.has_samples_noised:
            return 0.0
        if privacy.noise_multiplier is not None:
            return privacy.noise_multiplier
        steps: dict[float, int] = {}
        for client, visits in enumerate(self.schedule.visits()):
            rate, each = self.sampling(client)
            planned = each * self.config.local_epochs * visits
            steps[rate] = max(planned, steps.get(rate, 0))
        try:
            return self._find_noise(steps)
        except Infeasible as error:
            raise InputError({"privacy.target_epsilon": str(error)}) from error

    def _find_noise(self, steps: Mapping[float, int]) -> float:
        """Return the noise that keeps the worst client within the budget."""
        target, delta = share_of_budget(self.config), self.config.privacy.delta
        # One client decides. Which one, its own noise tells: nobody else may exceed the budget.
        worst = max(steps, key=lambda rate: rate * steps[rate] ** 0.5)
        while True:
            found = find_for(target, delta, {worst: steps[worst]})
            spent = {rate: epsilon({(found, rate): n}, delta) for rate, n in steps.items()}
            if max(spent.values()) <= target:
                return found
            worst = max(spent, key=lambda rate: spent[rate])

    def _require_no_generators(self) -> None:
        """Refuse generators of the recipe's own where their place would tell, or be another."""
        if not (self.config.is_private or self.config.is_distributed):
            return
        if found := ", ".join(generators.find(self.objects())):
            why = (
                "its position would reveal the number of examples"
                if self.config.is_private
                else "clients on other workers would restart it"
            )
            problem = f"{found} is a random generator that the recipe creates, and {why}"
            raise InputError({"recipe": f"{problem}; allowed: the global streams"})

    def _require_monitor(self) -> None:
        """Refuse to go by a metric that is not measured."""
        names = ["loss", *self.ingredients.measures]
        measured = [] if self.config.is_private else [f"train_{name}" for name in names]
        measured += [f"val_{name}" for name in names] if self.validation is not None else []
        if self.config.monitor not in measured:
            allowed = ", ".join(measured) or "none: there are no validation examples"
            raise InputError({"monitor": f"got {self.config.monitor!r}; allowed: {allowed}"})


def _require_enough(config: FederatedOptions, num_clients: int) -> None:
    """Refuse rounds of more clients than a column or files came to. Raises InputError."""
    if config.min_clients > num_clients:
        problem = (
            f"got {config.min_clients}; at most the clients, of which there are {num_clients} "
            f"by {config.partition.by}"
        )
        raise InputError({"min_clients": problem})


def _require_somebody(schedule: RoundSchedule) -> None:
    """Refuse a run of rounds that all are empty by chance. Raises InputError."""
    if not schedule.total_steps:
        problem = (
            f"got {schedule.config.fraction:g}; by chance none of {schedule.num_clients} clients "
            f"takes part in any of {schedule.config.rounds} rounds; allowed: more, or more rounds"
        )
        raise InputError({"fraction": problem})


def require_gradients_of_each(context: FederatedContext) -> None:
    """Refuse a model that has no gradient of a single example's loss. Raises InputError.

    Tried as a step is, before anything is written down; nothing of it stays.
    """
    noise = Noise(multiplier=0.0, max_grad_norm=1.0, expected_examples=1.0)
    gradients = NoisyGradients(context.model, context.ingredients.loss, noise)
    streams, some = reproducibility.state_dict(), torch.arange(min(2, len(context.train)))
    context.model.train()
    try:
        gradients.fill(context.train, some, lambda _: context.secrets.numbers("tried"))
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        problem = (
            f"got {context.config.privacy.mode!r}; there are no gradients of single examples "
            f"({reason}); allowed: none and user, or a model that does the same for all examples"
        )
        raise InputError({"privacy.mode": problem}) from error
    finally:
        context.layout.take_gradients()
        reproducibility.load_state_dict(streams)


def _build(config: FederatedOptions, context: Context) -> Federation:
    recipe = config.find_recipe()
    federation: Federation = recipe.builder()(recipe.parse_parameters(config.parameters), context)
    if not isinstance(federation, Federation):
        raise TypeError(f"{recipe.build} returned {type(federation).__name__}, not Federation")
    if not len(federation.ingredients.train):
        raise InputError({"recipe": f"{recipe.name} has no training examples"})
    _require_nothing_ignored(recipe.name, federation)
    return federation


def _require_nothing_ignored(name: str, federation: Federation) -> None:
    """Refuse ingredients that only a training run makes use of. Raises InputError."""
    given = [each for each in NOT_USED if getattr(federation.ingredients, each) is not None]
    if given:
        problem = (
            f"got {name!r}, which brings its own {' and '.join(given)}; clients train by the "
            "config's optimizer, learning_rate, momentum and weight_decay, at the same rate in all "
            "rounds; allowed: a recipe without them (dataclasses.replace(ingredients, "
            "optimizers=None, schedulers=None), where it wraps those of training). They had no "
            "effect in versions that did not refuse them: an operation that was begun by one goes "
            "on as before once the recipe is without them; change the recipe, then resume it"
        )
        raise InputError({"recipe": problem})
