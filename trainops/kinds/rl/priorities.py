"""Drawing by priority: sums of blocks in the place of a tree."""

import torch
from torch import Tensor

BLOCK = 1024
SMALLEST, LARGEST = 1e-6, 1e6  # no transition is never drawn, none always
ONE = 2**20  # a priority of 1 as an integer


class Priorities:
    """How likely each slot is drawn, |error| ** alpha (Schaul et al. 2016, 3.3).

    They are kept in bfloat16: a checkpoint writes two bytes for each slot, and three digits are
    enough to draw by. Sums of blocks are of integers, so they follow from the priorities alone, in
    whatever order and on whatever device they are added.
    """

    def __init__(self, slots: int, alpha: float, device: torch.device) -> None:
        blocks = -(-slots // BLOCK)
        self.slots, self.alpha = slots, alpha
        self.values = torch.zeros(blocks * BLOCK, dtype=torch.bfloat16, device=device)
        self.sums = torch.zeros(blocks, dtype=torch.int64, device=device)
        self.largest = 1.0  # a new transition's

    def add(self, taken: slice) -> None:
        self.values[taken] = self.largest
        first, last = taken.start // BLOCK, (taken.stop - 1) // BLOCK
        self._sum_up(torch.arange(first, last + 1, device=self.sums.device))

    def update(self, slots: Tensor, errors: Tensor) -> None:
        given = (errors.abs() + SMALLEST).pow(self.alpha).clamp(max=LARGEST)
        self.largest = max(self.largest, float(given.max()))
        self.values[slots] = given.to(torch.bfloat16)
        self._sum_up(slots // BLOCK)

    def draw(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `size` slots, one from each of as many equal shares, and their probabilities."""
        device = self.sums.device
        shares = torch.arange(size, device=device, dtype=torch.float64)
        shares += torch.rand(size, generator=generator, device=device, dtype=torch.float64)
        up_to = self.sums.cumsum(0)
        at = (shares / size * up_to[-1]).long().clamp(max=up_to[-1] - 1)
        block = torch.searchsorted(up_to, at, right=True)
        within = _integers(self.values.view(-1, BLOCK)[block]).cumsum(1)
        place = (within <= (at - up_to[block] + self.sums[block])[:, None]).sum(1)
        slots = block * BLOCK + place
        return slots, _integers(self.values[slots]).float() / up_to[-1].float()

    def load(self, values: Tensor, largest: float) -> None:
        """Take over the priorities of all slots. Raises ValueError."""
        if values.shape != (self.slots,) or values.dtype != torch.bfloat16:
            raise ValueError(f"priorities are {values.dtype} {tuple(values.shape)}")
        self.values[: self.slots] = values.to(self.values.device)
        self.largest = float(largest)
        self._sum_up(torch.arange(len(self.sums), device=self.sums.device))

    def saved(self) -> Tensor:
        return self.values[: self.slots]

    def _sum_up(self, blocks: Tensor) -> None:
        self.sums[blocks] = _integers(self.values.view(-1, BLOCK)[blocks]).sum(1)


def _integers(values: Tensor) -> Tensor:
    """Return priorities as multiples of 1 / ONE, those above 0 at least 1."""
    return torch.maximum((values.float() * ONE).long(), (values > 0).long())
