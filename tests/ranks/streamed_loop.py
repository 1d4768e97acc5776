"""The loop of `tests.ranks.streamed`, disturbed by FAULT as `tests.ranks.together_loop` is."""

import torch
from torch.nn import functional
from torch.utils.data import IterableDataset, get_worker_info

from tests.ranks.together_loop import Noisy, disturb, make_model

FIRST_SHARD = 0.6  # of the examples: ranks end after other numbers of batches


def shard_of(length, rank, num_ranks):
    """Return the examples of a rank: the first has more than the others."""
    end = round(FIRST_SHARD * length)
    return range(length)[:end] if rank == 0 else range(length)[end + rank - 1 :: num_ranks - 1]


class Flow(IterableDataset):
    """Examples in their order; worker processes share them."""

    def __init__(self, examples, indices):
        self.examples, self.indices = examples, indices

    def own(self):
        worker = get_worker_info()
        return self.indices if worker is None else self.indices[worker.id :: worker.num_workers]

    def __iter__(self):
        for index in self.own():
            yield self.examples[index]


class StatefulFlow(Flow):
    """Has a position, and begins each pass one example further on."""

    def __init__(self, examples, indices):
        super().__init__(examples, indices)
        self.position, self.passes = 0, 0

    def state_dict(self):
        return {"position": self.position, "passes": self.passes, "first": self.indices[0]}

    def load_state_dict(self, state):
        if state["first"] != self.indices[0]:
            raise ValueError("got the state of another shard")
        self.position, self.passes = state["position"], state["passes"]

    def __iter__(self):
        indices = self.own()
        while self.position < len(indices):
            self.position += 1
            yield self.examples[indices[(self.position - 1 + self.passes) % len(indices)]]
        self.position, self.passes = 0, self.passes + 1


class OnlyBatches:
    """A loop over several loaders, without their names."""

    def __init__(self, several):
        self.several = several

    def __iter__(self):
        return (batch for _, batch in self.several)


def make_dataset(run, parameters):
    noise = 0.0 if parameters.is_plain else 0.1
    indices = range(parameters.length)
    if parameters.shards in ("itself", "unsaid"):
        indices = shard_of(parameters.length, run.rank, run.num_ranks)
    kind = StatefulFlow if parameters.is_stateful else Flow
    return kind(Noisy(parameters.length, noise), indices)


def train(run, parameters):
    model = run.keep("model", make_model(parameters.is_plain).to(run.device))
    net = run.wrap(model)
    optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters(), 0.01))
    own = run.keep("own", {"steps": 0, "seen": 0.0})
    batches = run.loader(
        "train", make_dataset(run, parameters), batch_size=4, drop_last=parameters.drop_last,
        num_workers=parameters.num_workers,
        shards_itself=parameters.shards in ("itself", "nothing"),
    )  # fmt: skip
    if parameters.several:
        examples = StatefulFlow(Noisy(20), range(20))
        second = run.loader("second", examples, batch_size=4)
        both = {"first": batches, "second": second}
        batches = OnlyBatches(run.loaders(both, schedule="alternating", pattern=[*both], length=10))
    within = run.steps("within", 2)
    for _ in run.epochs(parameters.epochs):
        for inputs, targets in batches:
            if parameters.is_in_place:
                inputs.div_(2)
            loss = functional.cross_entropy(net(inputs.to(run.device)), targets.to(run.device))
            optimizer.zero_grad()
            loss.backward()
            if not parameters.encloses:
                optimizer.step()
                own["steps"] += 1
                own["seen"] = own["seen"] * 0.9 + inputs.sum().item()
                disturb(run.rank, own["steps"], model)
                yield {"train_loss": loss, "seen": own["seen"]}
            for _ in within if parameters.encloses else ():
                own["steps"] += 1
                own["seen"] = own["seen"] * 0.9 + inputs.sum().item()
                disturb(run.rank, own["steps"], model)
                yield {"seen": own["seen"]}
        yield {"end": own["seen"]}
