"""Releases: when noise is used, what names it, and whether the budget has room for it."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from blake3 import blake3

from trainops.kinds.federated import moved_code
from trainops.kinds.federated.drawing import circumstances
from trainops.kinds.federated.limits import find_user_noise
from trainops.kinds.federated.purse import Purse
from trainops.kinds.federated.record import Record
from trainops.kinds.federated.server import Server
from trainops.kinds.federated.together import Together
from trainops.kinds.federated.visit import Visit
from trainops.kinds.federated.workshop import Workshop
from trainops.runtime.errors import InputError
from trainops.runtime.ledger import Entry, PrivacyLedger

# What draws noise and samples, and what they are added to, beside the recipe's own code.
CODE = (
    "drawing", "private", "clipping", "layered", "losses", "optimizer", "visit", "server",
    "schedule", "strategies.fedprox",
)  # fmt: skip
# What of the config changes nothing in a release: how long the run is, and how it is kept.
IRRELEVANT = {
    "rounds", "checkpoint", "restart", "limits", "resources", "monitor", "mode", "device",
    "threads", "deterministic", "placement", "labels", "round_timeout",
}  # fmt: skip


class Releasing:
    """Names each release by everything that it follows from.

    Noise is drawn by that name. So a step that is done again from the same bits releases the same
    bits, which tells nobody anything new; from any other bits it draws other noise, and is another
    release. Two different results never share their noise: their difference would have none.
    """

    def __init__(self, workshop: Workshop, purse: Purse) -> None:
        self.workshop, self.purse, config = workshop, purse, workshop.config
        self.user_noise_multiplier = 0.0
        if config.has_users_noised:
            given = config.privacy.user_noise_multiplier
            self.user_noise_multiplier = find_user_noise(config) if given is None else given
        told = config.model_dump(mode="json", exclude=IRRELEVANT)
        told["privacy"].pop("target_epsilon")
        here = (f"{__package__}.{room}" for room in CODE)
        self._told = [told, *map(_digest_of, (*config.code(), *here))]
        self._data: dict[int, str] = {}

    def of_epoch(self, visit: Visit | Together, record: Record) -> Entry | None:
        """Return what a client's next local epoch releases; None without sample-level privacy."""
        if not self.workshop.config.has_samples_noised or isinstance(visit, Together):
            return None
        unnamed, state = self._of_examples(record, visit.client, ""), visit.state_dict()
        plain = [unnamed.to_json(), record.epoch, self._told]
        follows_from = [
            visit.anchor, state["parameters"], state["buffers"], state["optimizer"],
            self.workshop.layout.frozen, self._data_of(visit.client), circumstances(),
            dict(self.workshop.ingredients.constants),
        ]  # fmt: skip
        return replace(unnamed, noise=self.workshop.secrets.identity(plain, follows_from))

    def of_round(self, server: Server, record: Record) -> Entry | None:
        """Return what the round's next model releases; None without user-level privacy.

        Where a model of the same clients was released before with other noise, being among them is
        no chance any more: it counts in full.
        """
        if not self.workshop.config.has_users_noised:
            return None
        unnamed = self._of_users(record, "")
        plain = [unnamed.to_json(), list(record.chosen), self._told]
        strategy = self.workshop.strategy.state
        follows_from = [server.sum_of_updates(), server.parameters, strategy, circumstances()]
        entry = replace(unnamed, noise=self.workshop.secrets.identity(plain, follows_from))
        return replace(entry, sample_rate=1.0) if self.purse.was_sampled(entry) else entry

    def is_next_affordable(self, record: Record) -> bool:
        """Whether the budget has room for the next step, and for the model its round is for.

        What was written down for it before the run died is there already, and will be met again;
        should it not, the exact question follows when the release has its name.
        """
        return self._is_round_affordable(record) and self._is_epoch_affordable(record)

    def require_room(self, record: Record) -> None:
        """Refuse a budget that ends a run before its first step. Raises InputError."""
        config = self.workshop.config
        if config.privacy.target_epsilon is None or self.is_next_affordable(record):
            return
        account = self.purse.foresight()
        if config.has_samples_noised:
            account.add(self._of_examples(record, client, "") for client in record.chosen)
        if config.has_users_noised:
            account.add([self._of_users(record, "")])
        problem = (
            f"got {config.privacy.target_epsilon:g}; with this noise the first epoch of each "
            f"client comes to {account.epsilon:.4g}; allowed: more than that, or more noise (left "
            "out, it is found for the budget), a smaller share of clients or smaller batches"
        )
        raise InputError({"privacy.target_epsilon": problem})

    def plan(self, record: Record) -> dict[int, int]:
        """Return how many local epochs the budget has room for, by client, at a visit's beginning.

        Of those clients that the round is yet to train, in their order; where it has room for no
        more, the run would end, so nobody comes after.
        """
        clients, target = record.chosen[record.done :], self.workshop.config.privacy.target_epsilon
        epochs = self.workshop.config.local_epochs
        if not self.workshop.config.has_samples_noised or target is None:
            return dict.fromkeys(clients, epochs)
        account, planned, step = self.purse.foresight(), dict[int, int](), record.step
        for client in clients:
            entry = self._of_examples(record, client, "")
            for epoch in range(epochs):
                step += 1
                if not self.purse.is_ahead("sample", step=step):
                    account.add([entry])
                    if account.epsilon > target:
                        return planned
                planned[client] = epoch + 1
        return planned

    def summary(self) -> dict[str, Any]:
        """Return what the result says of privacy."""
        config = self.workshop.config
        return {
            "mode": config.privacy.mode,
            "delta": config.privacy.delta,
            "target_epsilon": config.privacy.target_epsilon,
            "noise_multiplier": self.workshop.noise_multiplier or None,
            "user_noise_multiplier": self.user_noise_multiplier or None,
            "accountant": config.privacy.accountant,
            "figures_by": self.purse.accountants(),
            **self.purse.total(),
        }

    def _is_round_affordable(self, record: Record) -> bool:
        """Look at the beginning of a round, so that no client trains for nothing."""
        is_begun = record.done or record.epoch
        if not self.workshop.config.has_users_noised or is_begun:
            return True
        is_ahead = self.purse.is_ahead("user", round_number=record.number)
        return is_ahead or self.purse.affords(self._of_users(record, ""))

    def _is_epoch_affordable(self, record: Record) -> bool:
        if not self.workshop.config.has_samples_noised or record.client is None:
            return True
        is_ahead = self.purse.is_ahead("sample", step=record.step + 1)
        return is_ahead or self.purse.affords(self._of_examples(record, record.client, ""))

    def _of_examples(self, record: Record, client: int, noise: str) -> Entry:
        rate, steps = self.workshop.sampling(client)
        return Entry(
            noise=noise, step=record.step + 1, round=record.number, client=client, level="sample",
            noise_multiplier=self.workshop.noise_multiplier, sample_rate=rate, steps=steps,
        )  # fmt: skip

    def _of_users(self, record: Record, noise: str) -> Entry:
        config = self.workshop.config
        return Entry(
            noise=noise, step=max(1, record.step), round=record.number, client=None, level="user",
            noise_multiplier=self.user_noise_multiplier, sample_rate=config.fraction, steps=1,
        )  # fmt: skip

    def _data_of(self, client: int) -> str:
        """Return a name for a client's examples."""
        if client not in self._data:
            inputs, targets = self.workshop.train.batch(self.workshop.parts[client])
            self._data[client] = self.workshop.secrets.identity("data", [*inputs, targets])
        return self._data[client]


def say_rates(workshop: Workshop, ledger: PrivacyLedger) -> None:
    """Write down what sample rates clients have, where figures are not to tell who took part."""
    rates = sorted({workshop.sampling(client)[0] for client in range(len(workshop.parts))})
    entries = [
        Entry(
            noise=workshop.secrets.identity(["rate", rate], []), step=0, round=0, client=None,
            level="sample", noise_multiplier=0.0, sample_rate=rate, steps=0,
        )
        for rate in rates
    ]  # fmt: skip
    known = {entry.noise for entry in ledger.spent()}
    if new := [entry for entry in entries if entry.noise not in known]:
        ledger.write(new)


def _digest_of(path: str) -> str:
    """Return a digest of the module that "package.module:name" is of: its text, if it has one."""
    module = import_module(path.partition(":")[0])
    text = Path(module.__file__).read_bytes() if module.__file__ else b""
    digest = blake3(text).hexdigest()
    return moved_code.BEFORE.get(digest, digest)
