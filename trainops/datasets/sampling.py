"""Which files of a registered directory a verification reads, where it does not read all."""

import random
from typing import NamedTuple


class Sample(NamedTuple):
    """A number of files, or a fraction of them; the seed draws which."""

    seed: int
    num_files: int | None = None
    fraction: float = 1.0

    def drawn(self, num_files: int) -> list[int]:
        """Return the places of the files to read, sorted; at least one, if there are any."""
        wanted = self.num_files or max(1, round(self.fraction * num_files))
        return sorted(random.Random(self.seed).sample(range(num_files), min(wanted, num_files)))
