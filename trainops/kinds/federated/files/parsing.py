"""Reading the fields of a federated run's file."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from trainops.files.fields import Fields, is_integer, is_number, shown
from trainops.files.optimizers import read_optimizer
from trainops.kinds.federated.files.file import (
    CLIENT_STATUSES,
    ROUND_STATUSES,
    ClientState,
    EpochProgress,
    FederatedFile,
    PrivacyState,
    Round,
    ServerState,
    Spent,
)


def parse(tree: Mapping[str, Any]) -> FederatedFile:
    """Return the file's values. Raises InvalidFields."""
    fields = Fields(tree)
    found_round, server = fields.within("round"), fields.within("server")
    file = FederatedFile(
        version=fields.text("version"),
        timestamp=_read_timestamp(fields),
        run_name=fields.text("run_name"),
        round=Round(
            current=found_round.integer("current", at_least=1),
            total=found_round.integer("total", at_least=1),
            status=found_round.choice("status", ROUND_STATUSES),
        ),
        server=ServerState(
            parameters=server.arrays("parameters"),
            best_dice=server.number("best_dice", default=0.0),
            metrics=server.numbers("metrics", default={}),
        ),
        clients=_read_clients(fields),
        privacy=_read_privacy(fields.within("privacy")),
    )
    fields.finish()
    return file


def _read_timestamp(fields: Fields) -> str:
    timestamp: str = fields.text("timestamp")
    try:
        datetime.fromisoformat(timestamp)
    except ValueError:
        fields.wrong("timestamp", f"is {shown(timestamp)}; must be a moment in ISO 8601")
    return timestamp


def _read_clients(fields: Fields) -> dict[int, ClientState]:
    """Return the clients by number; their keys are integers, or strings of digits."""
    clients: dict[int, ClientState] = {}
    found = fields.within("clients")
    for key in found.names():
        number = _client_number(key)
        if number is None or number in clients:
            problem = "is no client's number" if number is None else "is there twice"
            found.wrong(key, f"{problem}: {shown(key)}; must be an integer or a string of digits")
            continue
        clients[number] = _read_client(found.within(key))
    return clients


def _client_number(key: Any) -> int | None:
    if is_integer(key) and key >= 0:
        return int(key)
    is_digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 18
    return int(key) if is_digits else None


def _read_client(fields: Fields) -> ClientState:
    epoch = fields.within("epoch")
    metrics = fields.within_or_empty("partial_metrics")
    privacy = fields.within_or_empty("partial_privacy")
    number = _client_number(fields.plain("client_id"))
    if number is None:
        fields.wrong("client_id", f"is {shown(fields.plain('client_id'))}; must be an integer")
    return ClientState(
        client_id=number or 0,
        epoch=EpochProgress(
            current=epoch.integer("current"),
            total=epoch.integer("total"),
            status=epoch.choice("status", CLIENT_STATUSES),
        ),
        model_state=fields.tensors("model_state", default=None),
        optimizer_state=read_optimizer(fields.within("optimizer_state"))
        if fields.has("optimizer_state")
        else None,
        loss_sum=metrics.number("loss_sum", default=0.0),
        epochs_done=metrics.integer("epochs_done", default=0),
        epsilon=privacy.number("epsilon", at_least=0, default=0.0),
        steps=privacy.integer("steps", default=0),
        noise_multiplier=privacy.number("noise_multiplier", at_least=0, default=None),
        sample_rate=privacy.number("sample_rate", at_least=0, default=None),
        final_parameters=fields.arrays("final_parameters", default=None),
        final_metrics=fields.numbers("final_metrics", default=None),
        num_samples=fields.integer("num_samples", default=0),
    )


def _read_privacy(fields: Fields) -> PrivacyState:
    delta = fields.number("target_delta")
    if not 0 < delta < 1:
        fields.wrong("target_delta", f"is {shown(delta)}; must lie between 0 and 1")
    return PrivacyState(
        target_delta=delta,
        sample_history=_read_history(fields, "sample_history"),
        user_history=_read_history(fields, "user_history"),
        cumulative_sample_epsilon=fields.number("cumulative_sample_epsilon", 0, default=0.0),
        cumulative_user_epsilon=fields.number("cumulative_user_epsilon", 0, default=0.0),
        partial_round_epsilon=fields.number("partial_round_epsilon", 0, default=0.0),
    )


def _read_history(fields: Fields, name: str) -> tuple[Spent, ...]:
    spent: list[Spent] = []
    for number, each in enumerate(fields.sequence(name, default=())):
        match each:
            case (sigma, rate, steps) if (
                is_number(sigma)
                and is_number(rate)
                and is_integer(steps)
                and 0 <= sigma < np.inf
                and 0 <= rate <= 1
                and 0 <= steps < 2**63
            ):
                spent.append((float(sigma), float(rate), int(steps)))
            case _:
                fields.wrong(
                    f"{name}[{number}]",
                    f"is {shown(each)}; must be noise multiplier, sample rate (0 to 1) and steps",
                )
    return tuple(spent)
