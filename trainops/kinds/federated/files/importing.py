"""A federated file of version 2.x as a checkpoint that our federated job loads.

The server's model is taken over, with the rounds that are done. Within a round, clients whose
results are there are done, and the one in training goes on, as far as they come in this product's
order; the round's other clients train from its model. What was spent is carried over, in completed
rounds and in the one in progress; where the file has a figure without its history (files of the
original have none), the figure itself counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from trainops.files.description import Imported
from trainops.kind import KINDS
from trainops.kinds.federated.clipping import clipped
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.files.client_optimizer import from_torch, other_settings
from trainops.kinds.federated.files.file import ClientState, FederatedFile, notices
from trainops.kinds.federated.files.spending import (
    has_spent,
    is_of,
    ledger_entries,
    spends_samples,
)
from trainops.kinds.federated.files.tensors import fitted, tensors_of
from trainops.kinds.federated.job import NUMBERS, FederatedJob
from trainops.kinds.federated.local_training import LocalTraining, Update
from trainops.kinds.federated.releases import LEVELS
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict
from trainops.runtime.ledger import MemoryLedger
from trainops.runtime.receipt import Receipt, ReceiptItem

FAILED_STEP = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
KEPT = {"sample": "has_samples_noised", "user": "has_users_noised"}  # what a config says


@dataclass(slots=True)
class _Import:
    file: FederatedFile
    config: FederatedConfig
    job: FederatedJob
    items: list[ReceiptItem] = field(default_factory=list)

    def say(self, part: str, note: str = "", *, is_exact: bool = True) -> None:
        self.items.append(ReceiptItem(part, is_exact, is_exact, note))


def import_federated(
    file: FederatedFile,
    config: FederatedConfig,
    inputs: Mapping[str, Path] | None = None,
    secret: bytes = b"",
) -> Imported:
    """Return what a job of this config would load to continue from the file.

    The random streams of this process stand afterwards where they stood before. Raises
    IncompatibleState where the model is of another shape or the rounds are beyond the config's;
    InputError as making the job does.
    """
    before = reproducibility.state_dict()
    try:
        ledger = MemoryLedger(secret=secret)
        job = cast(FederatedJob, KINDS["federated"].make_job(config, inputs, ledger))
        taking = _Import(file, config, job)
        streams = {"random": reproducibility.state_dict()}
        _take_model(taking)
        _take_spent(taking)
        _take_rounds(taking)
        if file.round.status == "in_progress":
            _take_clients(taking)
        state = freeze(job.state_dict() | streams)
        _try(config, inputs, secret, state)
        taking.say("random streams", "seeded anew, as for a first start", is_exact=False)
        receipt = Receipt(job.step, file.run_name, tuple(taking.items))
        return Imported(job.step, state, receipt, list(ledger.entries()))
    finally:
        reproducibility.load_state_dict(before)


def _take_model(taking: _Import) -> None:
    """Write the server's parameters into the job's model, by their order."""
    job, layout = taking.job, taking.job.context.layout
    own = layout.state_dict(job.server.parameters, job.server.buffers)
    given = tensors_of(taking.file.server.parameters, "server.parameters")
    named = fitted(given, own, layout, "server.parameters")
    layout.freeze(own | named)
    job.server.parameters, job.server.buffers = layout.taken_apart(own | named)
    layout.put(job.server.parameters, job.server.buffers)
    lacks = ", ".join(name for name in own if name not in named and name not in layout.tied)
    taking.say("model", f"the file does not have {lacks}; the recipe's" if lacks else "")
    if taking.config.server.strategy not in ("fedavg", "fedprox", "median", "trimmed_mean"):
        taking.say("server optimizer", "the file has none; starts anew", is_exact=False)


def _take_spent(taking: _Import) -> None:
    """Enter all that the file says was spent, or say that this config does not count it."""
    file, config, job = taking.file, taking.config, taking.job
    if not config.is_private:
        if has_spent(file):
            taking.say("privacy", "the file has spent some; this config keeps no account of it",
                       is_exact=False)  # fmt: skip
        return
    sizes = [len(part) for part in job.context.parts]
    is_by_client = not config.has_users_noised and is_of(file, sizes)
    entries = list(
        ledger_entries(file, config.privacy.delta, _named_by(job), is_by_client=is_by_client)
    )
    for level in LEVELS:
        is_counted = any(entry.level == level for entry, _, _ in entries)
        if getattr(config, KEPT[level]) and _is_trained(file) and not is_counted:
            note = "the file was trained without noise, or does not say with how much; not counted"
            taking.say(f"privacy: {level} level", note, is_exact=False)
    for entry, part, note in entries:
        job.noise_accounting.budget.spend(entry)
        if note:
            is_exact = not entry.carried and (entry.client is not None or not entry.steps)
            taking.say(part, note, is_exact=is_exact)


def _named_by(job: FederatedJob) -> Callable[[list[Any]], str]:
    return lambda plain: job.secrets.identity(plain, [])


def _is_trained(file: FederatedFile) -> bool:
    """Whether anything in the file was trained."""
    is_begun = any(client.epoch.current for client in file.clients.values())
    return is_begun or file.round.current > (file.round.status == "in_progress")


def _take_rounds(taking: _Import) -> None:
    """Write a line for each completed round; only the last one's metrics are in the file."""
    found, config, progress = taking.file.round, taking.config, taking.job.progress
    done = found.current - (found.status == "in_progress")
    if done > config.rounds:
        raise IncompatibleState(f"{done} rounds are done, the config has {config.rounds}")
    for notice in notices(taking.file):
        taking.say("rounds", notice)
    server = taking.file.server
    metrics = {name: each for name, each in server.metrics.items() if name not in NUMBERS}
    for number in range(1, done + 1):
        line = {"round": number, "clients": len(progress.chosen), config.monitor: math.nan}
        progress.history.append(line | (metrics if number == done else {}))
    last = metrics.get(config.monitor, math.nan)
    if progress.best.round == done and done:
        taking.job.server.keep_best()
        is_better = server.best_dice > last if config.mode == "max" else server.best_dice < last
        if server.best_dice and is_better:
            best = f"{config.monitor} was {server.best_dice:g} at best"
            note = f"{best}, and that model is not in the file; the last one, at {last:g}, is the "
            taking.say("best model", f"{note}best so far", is_exact=False)
    elif done:
        note = f"without {config.monitor}: the best model so far is not in the file"
        taking.say("history", note, is_exact=False)
    taking.say("data position", f"{done} of {config.rounds} rounds are done")


def _take_clients(taking: _Import) -> None:
    """Take over clients of the round, as long as they come in its order.

    None where chance decides who takes part: that some were taken over would tell who does.
    """
    progress, server = taking.job.progress, taking.job.server
    is_alone = not (taking.config.batched_clients or progress.schedule.is_by_chance)
    for client in progress.chosen if is_alone else ():
        state = taking.file.clients.get(client)
        if state is None or state.epoch.total != taking.config.local_epochs:
            break
        if taking.config.has_samples_noised and not spends_samples(state):
            break  # what it did is no release, and would become one
        if state.epoch.status == "completed" and state.final_parameters is not None:
            server.take(client, _update(taking, client, state))
            progress.done += 1
            taking.say(f"client {client}", "its result")
            continue
        if state.epoch.status == "in_progress" and 0 < state.epoch.current < state.epoch.total:
            _go_on(taking, client, state)
        break
    left = [c for c, state in taking.file.clients.items() if state.epoch.current]
    if lost := set(left) - set(server.updates) - ({progress.client} if progress.epoch else set()):
        why = "of another order or number of epochs, all at once, by chance, or without the noise "
        why += "that is wanted; they train this round anew"
        taking.say(f"clients {', '.join(map(str, sorted(lost)))}", why, is_exact=False)


def _update(taking: _Import, client: int, state: ClientState) -> Update:
    """Return what a client sent, of its own model."""
    layout, server = taking.job.context.layout, taking.job.server
    own = layout.state_dict(server.parameters, server.buffers)
    place = f"clients[{client}].final_parameters"
    named = fitted(tensors_of(state.final_parameters or (), place), own, layout, place)
    vector, buffers = layout.taken_apart(own | named)
    vector, count = vector - server.parameters, len(taking.job.context.parts[client])
    if taking.config.has_users_noised:
        return Update(clipped(vector, taking.config.privacy.max_update_norm), {}, count)
    return Update(vector, buffers, count, _means(taking, client, state))


def _means(taking: _Import, client: int, state: ClientState) -> dict[str, float]:
    """Return what a client's examples came to, where the file has all of it."""
    names, metrics = ("loss", *taking.job.context.ingredients.measures), state.final_metrics or {}
    if taking.config.is_private:
        return {}
    if not all(math.isfinite(metrics.get(name, math.nan)) for name in names):
        note = f"the file does not have {', '.join(names)} of it; the round's are the others'"
        taking.say(f"client {client}'s means", note, is_exact=False)
        return {}
    return {name: metrics[name] for name in names}


def _go_on(taking: _Import, client: int, state: ClientState) -> None:
    """Let a client continue at its epoch with its model and optimizer; else it begins its round."""
    job = taking.job
    local_training = cast(LocalTraining, job.server.receive(client, job.progress.number))
    own = local_training.state_dict()
    try:
        layout = job.context.layout
        server = layout.state_dict(job.server.parameters, job.server.buffers)
        given = list((state.model_state or {}).values())
        named = fitted(given, server, layout, f"clients[{client}].model_state")
        own["parameters"], own["buffers"] = layout.taken_apart(server | named)
        shapes = [each.shape for each in layout.parameters]
        theirs = state.optimizer_state or {}
        own["optimizer"] = from_torch(theirs, own["optimizer"], taking.config, shapes)
    except IncompatibleState as error:
        taking.say(f"client {client}", f"{error}; it trains this round anew", is_exact=False)
        return
    own["epoch"] = state.epoch.current
    local_training.load_state_dict(own)
    job.local_training, job.progress.epoch = local_training, state.epoch.current
    taking.say(f"client {client}", f"at epoch {state.epoch.current} of {state.epoch.total}, with "
               "its optimizer; its means are of the epochs to come")  # fmt: skip
    if others := other_settings(theirs, taking.config):
        settings = ", ".join(f"{name} {value!r:.40}" for name, value in others.items())
        why = f"had {settings}; what holds is the config's, and torch's defaults"
        taking.say(f"client {client}'s optimizer", why, is_exact=False)


def _try(
    config: FederatedConfig, inputs: Mapping[str, Path] | None, secret: bytes, state: StateDict
) -> None:
    """Load the state and go a step on from it. Raises IncompatibleState."""
    job = KINDS["federated"].make_job(config, inputs, MemoryLedger(secret=secret))
    parts = freeze({part: each for part, each in state.items() if part != "random"})
    try:
        job.load_state_dict(parts)
        if job.step < job.total_steps:
            job.advance()
    except FAILED_STEP as error:
        raise IncompatibleState(f"the first step from the file fails: {error}") from error
