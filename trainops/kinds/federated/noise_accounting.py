"""Releases: when noise is used, what names it, and whether the budget has room for it."""

from dataclasses import replace
from typing import Any

from trainops.kinds.federated.budget import PrivacyBudget
from trainops.kinds.federated.context import FederatedContext
from trainops.kinds.federated.fast.batched_clients import BatchedClients
from trainops.kinds.federated.limits import find_user_noise
from trainops.kinds.federated.local_training import LocalTraining
from trainops.kinds.federated.progress import FederatedProgress
from trainops.kinds.federated.release_names import settings_and_code
from trainops.kinds.federated.releases import Release, ReleaseLedger
from trainops.kinds.federated.rng import circumstances
from trainops.kinds.federated.server import FederatedServer
from trainops.runtime.errors import InputError


class NoiseAccounting:
    """Names each release by everything that it follows from.

    Noise is drawn by that name. So a step that is done again from the same bits releases the same
    bits, which reveals nothing new; from any other bits it draws other noise, and is another
    release. Two different results never share their noise: their difference would have none.
    """

    def __init__(self, context: FederatedContext, budget: PrivacyBudget) -> None:
        self.context, self.budget, config = context, budget, context.config
        self.user_noise_multiplier = 0.0
        if config.has_users_noised:
            given = config.privacy.user_noise_multiplier
            self.user_noise_multiplier = find_user_noise(config) if given is None else given
        self._settings_and_code = settings_and_code(config)
        self._data: dict[int, str] = {}

    def of_epoch(
        self, local_training: LocalTraining | BatchedClients, progress: FederatedProgress
    ) -> Release | None:
        """Return what a client's next local epoch releases; None without sample-level privacy."""
        if not self.context.config.has_samples_noised or isinstance(local_training, BatchedClients):
            return None
        unnamed, state = (
            self._of_examples(progress, local_training.client, ""),
            local_training.state_dict(),
        )
        plain = [unnamed.to_json(), progress.epoch, self._settings_and_code]
        follows_from = [
            local_training.anchor, state["parameters"], state["buffers"], state["optimizer"],
            self.context.layout.frozen, self._data_of(local_training.client), circumstances(),
            dict(self.context.ingredients.constants),
        ]  # fmt: skip
        return replace(unnamed, noise=self.context.secrets.identity(plain, follows_from))

    def of_round(self, server: FederatedServer, progress: FederatedProgress) -> Release | None:
        """Return what the round's next model releases; None without user-level privacy.

        Where a model of the same clients was released before with other noise, being among them is
        no chance any more: it counts in full.
        """
        if not self.context.config.has_users_noised:
            return None
        unnamed = self._of_users(progress, "")
        plain = [unnamed.to_json(), list(progress.chosen), self._settings_and_code]
        strategy = self.context.strategy.state
        follows_from = [server.sum_of_updates(), server.parameters, strategy, circumstances()]
        entry = replace(unnamed, noise=self.context.secrets.identity(plain, follows_from))
        return replace(entry, sample_rate=1.0) if self.budget.was_sampled(entry) else entry

    def is_next_affordable(self, progress: FederatedProgress) -> bool:
        """Whether the budget has room for the next step, and for the model its round is for.

        What was written down for it before the run died is there already, and will be met again;
        should it not, the exact question follows when the release has its name.
        """
        return self._is_round_affordable(progress) and self._is_epoch_affordable(progress)

    def require_room(self, progress: FederatedProgress) -> None:
        """Refuse a budget that ends a run before its first step. Raises InputError."""
        config = self.context.config
        if config.privacy.target_epsilon is None or self.is_next_affordable(progress):
            return
        account, what = self.budget.foresight(), "one round"
        if config.has_users_noised:
            account.add(self._missing_of_round(progress))
        else:
            what = "the first epoch of each client"
            account.add(self._of_examples(progress, client, "") for client in progress.chosen)
        problem = (
            f"got {config.privacy.target_epsilon:g}; with this noise {what} comes to "
            f"{account.epsilon:.4g}; allowed: more than that, or more noise (left out, it is found "
            "for the budget), a smaller share of clients or smaller batches"
        )
        raise InputError({"privacy.target_epsilon": problem})

    def plan(self, progress: FederatedProgress) -> dict[int, int]:
        """Return how many local epochs the budget has room for, by client, at a visit's beginning.

        Of those clients that the round is yet to train, in their order; where it has room for no
        more, the run would end, so no client follows.
        """
        clients, target = (
            progress.chosen[progress.done :],
            self.context.config.privacy.target_epsilon,
        )
        epochs = self.context.config.local_epochs
        if not self.context.config.has_samples_noised or target is None:
            return dict.fromkeys(clients, epochs)
        account, planned, step = self.budget.foresight(), dict[int, int](), progress.step
        for client in clients:
            entry = self._of_examples(progress, client, "")
            for epoch in range(epochs):
                step += 1
                if not self.budget.is_ahead("sample", step=step):
                    account.add([entry])
                    if account.epsilon > target:
                        return planned
                planned[client] = epoch + 1
        return planned

    def summary(self) -> dict[str, Any]:
        """Return what the result says of privacy."""
        config = self.context.config
        return {
            "mode": config.privacy.mode,
            "delta": config.privacy.delta,
            "target_epsilon": config.privacy.target_epsilon,
            "noise_multiplier": self.context.noise_multiplier or None,
            "user_noise_multiplier": self.user_noise_multiplier or None,
            "accountant": config.privacy.accountant,
            "figures_by": self.budget.accountants(),
            **self.budget.total(),
        }

    def _is_round_affordable(self, progress: FederatedProgress) -> bool:
        """Look at the beginning of a round, so that no client trains for nothing."""
        config, is_begun = self.context.config, progress.done or progress.epoch
        target = config.privacy.target_epsilon
        if not config.has_users_noised or is_begun or target is None:
            return True
        missing, account = self._missing_of_round(progress), self.budget.foresight()
        account.add(missing)
        return not missing or account.epsilon <= target

    def _missing_of_round(self, progress: FederatedProgress) -> list[Release]:
        """Return what the round that begins will release and has not been written down yet.

        The epochs of one client stand for those of all: with both levels, they count as if all
        clients trained them, see Cover.
        """
        missing, config = list[Release](), self.context.config
        if config.has_samples_noised and progress.chosen:
            entry = self._of_examples(progress, progress.chosen[0], "")
            steps = (entry.step + epoch for epoch in range(config.local_epochs))
            missing += [
                replace(entry, step=step)
                for step in steps
                if not self.budget.is_ahead("sample", step=step)
            ]
        if not self.budget.is_ahead("user", round_number=progress.number):
            entry = self._of_users(progress, "")
            rate = 1.0 if self.budget.was_sampled(entry) else entry.sample_rate
            missing.append(replace(entry, sample_rate=rate))
        return missing

    def _is_epoch_affordable(self, progress: FederatedProgress) -> bool:
        if not self.context.config.has_samples_noised or progress.client is None:
            return True
        is_ahead = self.budget.is_ahead("sample", step=progress.step + 1)
        return is_ahead or self.budget.affords(self._of_examples(progress, progress.client, ""))

    def _of_examples(self, progress: FederatedProgress, client: int, noise: str) -> Release:
        rate, steps = self.context.sampling(client)
        return Release(
            noise=noise, step=progress.step + 1, round=progress.number, client=client,
            level="sample", noise_multiplier=self.context.noise_multiplier,
            sample_rate=rate, steps=steps,
        )  # fmt: skip

    def _of_users(self, progress: FederatedProgress, noise: str) -> Release:
        config = self.context.config
        return Release(
            noise=noise, step=max(1, progress.step), round=progress.number, client=None,
            level="user", noise_multiplier=self.user_noise_multiplier,
            sample_rate=config.fraction, steps=1,
        )  # fmt: skip

    def _data_of(self, client: int) -> str:
        """Return a name for a client's examples."""
        if client not in self._data:
            inputs, targets = self.context.train.batch(self.context.parts[client])
            self._data[client] = self.context.secrets.identity("data", [*inputs, targets])
        return self._data[client]


def say_rates(context: FederatedContext, ledger: ReleaseLedger) -> None:
    """Write down what sample rates clients have, where figures are not to tell who took part."""
    rates = sorted({context.sampling(client)[0] for client in range(len(context.parts))})
    entries = [
        Release(
            noise=context.secrets.identity(["rate", rate], []), step=0, round=0, client=None,
            level="sample", noise_multiplier=0.0, sample_rate=rate, steps=0,
        )
        for rate in rates
    ]  # fmt: skip
    known = ledger.identities()
    if new := [entry for entry in entries if entry.noise not in known]:
        ledger.record(new)
