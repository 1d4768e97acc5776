"""Rounds of private clients as a plain loop: clipped, summed, noised, divided by what is expected.

Steps that keep each example's privacy are in test_references, beside a naive loop and Opacus.
The noise is drawn again under the name that the ledger has for it.
"""

import pytest
import torch

from tests.federated.runs import ServerLedger, make_job
from tests.federated.test_plain_rounds import CONFIG, model_of, network, permutation, step, torchs

SLACK = 2e-5  # clipping shortens by up to 1e-5 more than needed, for float32


@pytest.fixture(autouse=True)
def _double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("rate", [1.0, 0.5], ids=["all clients", "half, by chance"])
@pytest.mark.parametrize("most", [0.05, 0.4, 50.0], ids="clipped at {}".format)
def test_rounds_of_private_clients(most, rate):
    torch.manual_seed(7)
    ledger = ServerLedger()
    privacy = {"mode": "user", "user_noise_multiplier": 0.7, "max_update_norm": most}
    job = make_job(
        "user", ledger, **{**CONFIG, "fraction": rate, "optimizer": "sgd", "rounds": 4},
        server={"strategy": "fedavg", "learning_rate": 0.5}, privacy=privacy,
    )  # fmt: skip
    came = []
    for number in range(1, 5):
        chosen, before, released = job.progress.chosen, model_of(job), len(ledger.releases())
        while len(job.progress.history) < number:
            job.advance()
        (entry,) = ledger.releases()[released:]
        updates = [update_of(job, before, client, number) for client in chosen]
        total = sum((clip(each, most) for each in updates), torch.zeros_like(flat(before)))
        drawn = job.secrets.numbers(entry.noise).standard_normal(len(total))
        noised = total + 0.7 * most * torch.from_numpy(drawn)
        expected = flat(before) + 0.5 * noised / (rate * 4)
        assert entry.noise_multiplier == 0.7
        torch.testing.assert_close(flat(model_of(job)), expected, rtol=0, atol=SLACK * most)
        came.append(len(chosen))
    assert came == [4] * 4 if rate == 1 else len(set(came)) > 1


def update_of(job, weights, client, number):
    """Train a client alone; return how far its weights moved."""
    model, part = network(weights), job.context.parts[client]
    optimizer = torchs(job.config, model)
    for epoch in range(job.config.local_epochs):
        order = part[permutation(len(part), job.config.seed, number, client, epoch)]
        for batch in order.split(job.config.batch_size):
            step(job.config, model, optimizer, weights, job.context.train, batch)
    return flat(model.state_dict()) - flat(weights)


def clip(update, most):
    return update * min(1.0, most / float(update.norm()))


def flat(weights):
    return torch.cat([each.flatten() for each in weights.values()])
