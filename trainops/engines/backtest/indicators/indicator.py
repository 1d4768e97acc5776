"""What all streaming indicators have: their whole state in one array of fixed size."""

import numpy as np


class Indicator:
    """Takes one bar's values at a time; what it remembers does not grow with the series."""

    def __init__(self, size: int) -> None:
        self.state = np.zeros(size)
