"""What `replicas` trains, as a plain loop of torch's DistributedDataParallel."""

import copy
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset

from tests.loop.pair import Parameters
from tests.loop.pair_module import Examples, training_examples
from tests.ranks.replicas_module import Replica
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.ranks import Devices

SEED, VALIDATED = 7, 7  # the seed of the tests; examples of the validation


def train_all(rank, num_ranks, directory, settings):
    """Be one rank of all trainings; rank 0 saves their results by name."""
    for name, given in settings.items():
        plain = Plain(Devices(rank, num_ranks), Parameters.parse(given))
        plain.run()
        if rank == 0:
            torch.save(plain.results(), Path(directory) / f"{name}.pt")


def batches(devices, name, examples, size):
    shuffle = name == "train" and not isinstance(examples, IterableDataset)
    run = Run(
        Course(lambda: None), seed=SEED, device=torch.device("cpu"), inputs={}, devices=devices
    )
    found = run.loader(name, examples, batch_size=size, shuffle=shuffle).source
    return lambda epoch: list(found.items(epoch, 0))


def added(number):
    total = torch.as_tensor(number, dtype=torch.float64).clone()
    distributed.all_reduce(total)
    return total


class Scores(nn.Module):
    """The forward pass of training, for DistributedDataParallel."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs, name):
        if name == "body":
            self.net.calls += 1
        self.net.seen += len(inputs)
        return self.net.head(self.net.body(inputs))


class Plain:
    """The loop that a person would write for these settings."""

    def __init__(self, devices, settings):
        self.devices, self.settings = devices, settings
        reproducibility.seed_all(SEED)
        run = type("Rank", (), {"rank": devices.rank})
        self.net = Replica(run, settings)
        self.average = copy.deepcopy(self.net)
        self.ddp = DistributedDataParallel(Scores(self.net), find_unused_parameters=True)
        body, head = self.net.body.parameters(), self.net.head.parameters()
        self.is_second_order = settings.optimizer.name == "LBFGS"
        if self.is_second_order:
            made = torch.optim.LBFGS(self.net.parameters(), lr=0.05, max_iter=3)
        else:
            made = torch.optim.AdamW(self.net.parameters(), lr=0.05)
        self.optimizers = {"body": made}
        if settings.optimizers == 2:
            self.optimizers = {
                "body": torch.optim.AdamW(body, lr=0.05),
                "head": torch.optim.SGD(head, 0.05, momentum=0.9),
            }
        last = list(self.optimizers.values())[-1]
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(last, patience=0)
        self.train = batches(devices, "train", training_examples(settings), settings.batch_size)
        self.validation = batches(devices, "validation", Examples(VALIDATED), settings.batch_size)
        self.passes, self.step, self.losses = 0, 0, []
        self.best, self.stale = None, 0
        if devices.rank:
            rank_state.seed_rank(SEED, devices)

    def run(self):
        every = self.settings.validate_every_steps
        for epoch in range(self.settings.epochs):
            for parameter in self.net.body[0].parameters():
                parameter.requires_grad = epoch >= self.settings.frozen_epochs
            rest = iter(self.train(epoch))
            while window := list(islice(rest, self.settings.accumulation)):
                self.optimize(window)
                self.step += 1
                if every and self.step % every == 0 and self.is_over():
                    return
            if every is None and self.is_over():
                return

    def optimize(self, window):
        examples = added(sum(len(batch["target"]) for batch in window)).item()
        for name, optimizer in self.optimizers.items():
            if name == "head" and self.settings.rare and self.step % 3:
                continue
            if self.is_second_order:
                optimizer.step(partial(self.gather, window, examples, name))
            else:
                self.gather(window, examples, name)
                optimizer.step()
        decay = self.settings.ema_decay
        with torch.no_grad():
            for mean, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(new, 1 - decay if decay else 1.0)

    def gather(self, window, examples, name):
        """Let gradients be those of the mean over the examples of all ranks; return that mean."""
        self.net.zero_grad()
        mean = torch.zeros((), dtype=torch.float64)
        for number, batch in enumerate(window, start=1):
            with nullcontext() if number == len(window) else self.ddp.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
                    scores = self.ddp(batch["inputs"], name)
                    loss = functional.mse_loss(scores.float(), batch["target"])
                    loss = loss if name == "body" else loss.sqrt()
                # DistributedDataParallel divides the sum of the gradients by the ranks
                share = len(batch["target"]) * self.devices.num_ranks / examples
                (loss * share).backward()
            mean += loss.detach().double() * share
        if self.settings.max_grad_norm:
            groups = self.optimizers[name].param_groups
            weights = [each for group in groups for each in group["params"]]
            nn.utils.clip_grad_norm_(weights, self.settings.max_grad_norm)
        return (added(mean) / self.devices.num_ranks).item()

    def is_over(self):
        """Validate with the buffers of rank 0; return whether patience is exhausted."""
        for buffer in self.net.buffers():
            distributed.broadcast(buffer, 0)
        net = copy.deepcopy(self.net)
        with torch.no_grad():
            for own, new in zip(net.parameters(), self.average.parameters(), strict=True):
                own.copy_(new)
        net.eval()
        total, seen = torch.zeros((), dtype=torch.float64), 0
        for number, batch in enumerate(self.validation(self.passes)):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
                scores = net.head(net.body(batch["inputs"])).float()
                error = functional.mse_loss(scores, batch["target"]).double()
            self.net.validated += 1
            at = number * self.devices.num_ranks + self.devices.rank
            count = len(batch["target"]) if at * self.settings.batch_size < VALIDATED else 0
            total += added(error * count)
            seen += int(added(count))
        assert seen == VALIDATED
        self.passes += 1
        loss = total.item() / VALIDATED
        self.losses.append(loss)
        if self.best is None or loss < self.best:
            self.best, self.stale = loss, 0
        else:
            self.stale += 1
        if self.settings.second_schedule.name != "none":
            self.plateau.step(loss)
        return self.stale >= (self.settings.patience or 1000)

    def results(self):
        optimizers = [each.state_dict()["state"] for each in self.optimizers.values()]
        return {
            "model": self.net.state_dict(),
            "average": dict(self.average.named_parameters()),
            "optimizers": optimizers,
            "losses": self.losses,
        }

    @property
    def is_half(self):
        return self.settings.precision == "bf16"
