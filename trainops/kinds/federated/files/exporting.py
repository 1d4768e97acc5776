"""Our federated checkpoint as a file of version "2.0": the last state, or the best model."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from trainops.files.fields import is_number
from trainops.kinds.federated.account import Account
from trainops.kinds.federated.files.client_optimizer import to_torch
from trainops.kinds.federated.files.file import (
    Arrays,
    ClientState,
    EpochProgress,
    FederatedFile,
    PrivacyState,
    Round,
    ServerState,
    Spent,
)
from trainops.kinds.federated.job import NUMBERS
from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.release_log import names_of
from trainops.kinds.federated.releases import Level, Release
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict


def export_federated(
    state: StateDict,
    config: FederatedOptions,
    *,
    name: str,
    saved_at: str,
    which: Literal["last", "best"] = "last",
    spent: Sequence[Release] = (),
) -> FederatedFile:
    """Return the file for a checkpoint's parts. `name` is the operation's, `saved_at` ISO 8601.

    `spent` is all that the ledger holds: what was released stays released, also where this
    checkpoint, or its best model, did not go over it.

    Parameters are all tensors of the model's state, in its order. Under user-level privacy what
    clients sent within a round stays behind: without noise it must not be visible. Raises
    IncompatibleState where there is no best model yet, or the ledger lacks something.
    """
    plain = state["state"]
    history, path = plain["round_history"], _path(state, spent)
    if which == "best":
        if "best_model" not in state:
            raise IncompatibleState("no round has been completed, so there is no best model")
        number = plain["best_round"]
        found = Round(number, max(config.rounds, number), "completed")
        return FederatedFile(
            timestamp=saved_at, run_name=name, round=found,
            server=_server(state["best_model"], history[number - 1], plain), clients={},
            privacy=_privacy(config, spent, ()),
        )  # fmt: skip
    partial = _of_round_in_progress(path, plain, config)
    return FederatedFile(
        timestamp=saved_at, run_name=name, round=_round(plain, config),
        server=_server(state["model"], history[-1] if history else {}, plain),
        clients=_clients(state, config, partial),
        privacy=_privacy(config, spent, partial),
    )  # fmt: skip


def arrays_of(tensors: Sequence[Tensor]) -> Arrays:
    """Return arrays of tensors; NumPy has no bfloat16, of which each number is one of float32."""
    plain = (each.float() if each.dtype == torch.bfloat16 else each for each in tensors)
    return tuple(np.asarray(each.detach().cpu().numpy()) for each in plain)


def _round(plain: Mapping[str, Any], config: FederatedOptions) -> Round:
    is_between = not (plain["clients_done"] or plain["client_epoch"])
    if is_between and plain["round"]:
        return Round(plain["round"], config.rounds, "completed")
    return Round(plain["round"] + 1, config.rounds, "in_progress")


def _server(
    model: Mapping[str, Tensor], line: Mapping[str, Any], plain: Mapping[str, Any]
) -> ServerState:
    """Return the model, and what its round came to; the monitored metric is among the metrics.

    `best_dice` is the best of that metric, whatever it is called and whether more of it is better.
    """
    metrics = {
        name: float(value)
        for name, value in line.items()
        if name not in NUMBERS and is_number(value) and np.isfinite(value)
    }
    return ServerState(arrays_of(list(model.values())), plain["best_metric"] or 0.0, metrics)


def _clients(
    state: StateDict, config: FederatedOptions, spent: Sequence[Release]
) -> dict[int, ClientState]:
    """Return this round's clients: what is done, what is in training, what is pending.

    `spent` is what the round has spent so far.
    """
    plain, kept = state["state"], state["clients"]
    is_by_client = not config.has_users_noised
    is_training = is_by_client and not config.batched_clients  # together they begin the round anew
    found = {}
    for place, client in enumerate(plain["chosen"] or ()):
        mine = [each for each in spent if is_by_client and each.client == client]
        common = {"client_id": client, **_partial_privacy(mine, config)}
        if is_by_client and place < plain["clients_done"] and place not in plain.get("dropped", ()):
            found[client] = _done(kept["done"][str(client)], state, config, common)
        elif is_training and client == plain["client"] and plain["client_epoch"]:
            found[client] = _training(kept["visit"], state, config, common)
        else:
            epoch = EpochProgress(0, config.local_epochs, "pending")
            found[client] = ClientState(epoch=epoch, **common)
    return found


def _done(
    update: Mapping[str, Any], state: StateDict, config: FederatedOptions, common: Mapping[str, Any]
) -> ClientState:
    """Return a client whose epochs are over, with its own model as its result."""
    moved = _named(update, state, 1.0, update["vector"])
    epochs = config.local_epochs
    return ClientState(
        epoch=EpochProgress(epochs, epochs, "completed"), epochs_done=epochs,
        loss_sum=epochs * update["means"].get("loss", 0.0),
        final_parameters=arrays_of(list(moved.values())),
        final_metrics={name: float(value) for name, value in update["means"].items()},
        num_samples=update["num_examples"], **common,
    )  # fmt: skip


def _training(
    local_training: Mapping[str, Any],
    state: StateDict,
    config: FederatedOptions,
    common: Mapping[str, Any],
) -> ClientState:
    named = _named(local_training, state, 0.0, local_training["parameters"])
    shapes = [named[name].shape for name in _trained(local_training, state)]
    sums = local_training.get("sums", {"count": 0, "loss": 0.0})
    mean = sums["loss"] / sums["count"] if sums["count"] else 0.0
    return ClientState(
        epoch=EpochProgress(local_training["epoch"], config.local_epochs, "in_progress"),
        epochs_done=local_training["epoch"],
        loss_sum=local_training["epoch"] * mean, model_state=named,
        optimizer_state=to_torch(local_training["optimizer"], config, shapes),
        num_samples=state["state"]["partition"]["examples"][local_training["client"]], **common,
    )  # fmt: skip


def _named(
    kept: Mapping[str, Any], state: StateDict, share: float, vector: Tensor
) -> dict[str, Tensor]:
    """Return a client's model by the server's names: so much of the server's, and a vector."""
    model, tied = state["model"], state["state"].get("tied", {})
    trained = {name: model[name] for name in _trained(kept, state)}
    pieces = vector.split([each.numel() for each in trained.values()])
    named = model | kept["buffers"]
    for (name, each), piece in zip(trained.items(), pieces, strict=True):
        named[name] = share * each + piece.view_as(each)
    return {name: named[tied.get(name, name)] for name in model}


def _trained(kept: Mapping[str, Any], state: StateDict) -> list[str]:
    """Return the names of those tensors of the model that a client's vector is of."""
    plain = state["state"]
    others = {*kept["buffers"], *plain.get("frozen", ()), *plain.get("tied", ())}
    return [name for name in state["model"] if name not in others]


def _of_round_in_progress(
    path: Sequence[Release], plain: Mapping[str, Any], config: FederatedOptions
) -> list[Release]:
    """Return what clients have spent of their examples in the round that the file has open.

    Under user-level privacy the file has none open: its clients begin the round anew, so what they
    spent in it belongs to what is over.
    """
    if config.has_users_noised:
        return []
    return [each for each in path if each.round == plain["round"] + 1 and each.client is not None]


def _partial_privacy(mine: Sequence[Release], config: FederatedOptions) -> dict[str, Any]:
    """Return what one client has spent in this round; of several settings the costliest."""
    setting = {
        "noise_multiplier": min(each.noise_multiplier for each in mine),
        "sample_rate": max(each.sample_rate for each in mine),
    } if mine else {}  # fmt: skip
    steps = sum(each.steps for each in mine)
    return {"steps": steps, "epsilon": _epsilon(mine, config, "sample"), **setting}


def _privacy(
    config: FederatedOptions, spent: Sequence[Release], partial: Sequence[Release]
) -> PrivacyState:
    """Return what was spent, on this way or another, and by how much the open round raises it.

    The histories are the worst client's: its epsilon is what counts.
    """
    is_partial = {each.noise for each in partial}
    completed = [each for each in spent if each.noise not in is_partial]
    sample = _epsilon(completed, config, "sample")
    return PrivacyState(
        target_delta=config.privacy.delta,
        sample_history=_worst(completed, config),
        user_history=_history(completed, "user"),
        cumulative_sample_epsilon=sample,
        cumulative_user_epsilon=_epsilon(completed, config, "user"),
        partial_round_epsilon=max(0.0, _epsilon(spent, config, "sample") - sample),
    )


def _path(state: StateDict, spent: Sequence[Release]) -> list[Release]:
    """Return what the checkpoint went over, as the ledger has it."""
    known = {each.noise: each for each in spent}
    try:
        return [known[name] for name in names_of(state["spent"])] if "spent" in state else []
    except KeyError as error:
        raise IncompatibleState(f"the ledger lacks the release {error}") from error


def _worst(entries: Sequence[Release], config: FederatedOptions) -> tuple[Spent, ...]:
    """Return the sample-level history of the worst client; in hybrid, as if it were in each round.

    What concerns all of them is a part of it.
    """
    account = Account(config.privacy.delta)
    account.add(entries)
    figures = account.by_client("sample")
    worst = max(figures, key=lambda client: figures[client]) if figures else None
    covered = account.worst_covered()
    kept = [e for e in entries if e.client is None or (e.client == worst and not covered)]
    return (*_history(kept, "sample"), *covered)


def _history(entries: Sequence[Release], level: Level) -> tuple[Spent, ...]:
    return tuple(
        (e.noise_multiplier, e.sample_rate, e.steps)
        for e in entries
        if e.level == level and e.steps
    )


def _epsilon(entries: Sequence[Release], config: FederatedOptions, level: Level) -> float:
    account = Account(config.privacy.delta)
    account.add(entries)
    return account.of(level)
