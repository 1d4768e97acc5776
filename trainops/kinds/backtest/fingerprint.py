"""Which bars a state was made of, so that it continues over these and no others."""

from blake3 import blake3

from trainops.market.prices import Prices


class Fingerprint:
    """The digest of all bars before one, in time that follows the bars that are new."""

    def __init__(self, prices: Prices) -> None:
        self._columns = [prices.times, *prices.bars, prices.volume]
        self._end, self._hashers = 0, [blake3() for _ in self._columns]

    def before(self, bar: int) -> str:
        """Return the BLAKE3 digest, in hexadecimal, of times, prices and volumes before a bar."""
        if bar < self._end:
            self._end, self._hashers = 0, [blake3() for _ in self._columns]
        for column, hasher in zip(self._columns, self._hashers, strict=True):
            hasher.update(column[self._end : bar].tobytes())
        self._end = bar
        return blake3(b"".join(hasher.digest() for hasher in self._hashers)).hexdigest()
