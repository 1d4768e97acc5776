"""The model of prices: a small network, with all that turns bars into what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainops.market.bars import Floats
from trainops.market.features import features_of, prepared
from trainops.market.pipeline import FeatureParameters
from trainops.market.prices import Prices

BATCH_BARS = 8192  # always so many at once: another number could give other last bits
DOWN, UP = "down", "up"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """From bars to scores. `constants` is plain and all there is: it is kept with the weights.

    "features": FeatureParameters; "scale": what features.measured returned; "classes": names, or
    none for a regression; "target": its "deviation"; "hidden_sizes", "dropout"; "bar_seconds",
    "trained_until": microseconds since 1970 of the first bar that was not learned from;
    "validated_until": those of the first bar that was not validated on, either (not of models
    that versions before this field trained).
    """

    constants: Mapping[str, Any]

    @property
    def parameters(self) -> FeatureParameters:
        return FeatureParameters.parse(self.constants["features"])

    def inputs(self, prices: Prices, symbol: int) -> Floats:
        """Return (bars, inputs); NaN where too few bars lie before."""
        parameters = self.parameters
        columns = features_of(prices.bars, symbol, parameters)
        return prepared(columns, self.constants["scale"], parameters.fuzzy)

    def network(self) -> nn.Sequential:
        """Return a network with new weights: (N, inputs) float32 -> (N, classes), or (N, 1)."""
        scale, fuzzy = self.constants["scale"], self.parameters.fuzzy
        width = len(scale["names"]) * {"off": 1, "beside": 4, "instead": 3}[fuzzy]
        layers: list[nn.Module] = []
        for hidden in self.constants["hidden_sizes"]:
            dropout = nn.Dropout(self.constants["dropout"])
            layers += [nn.Linear(width, hidden), nn.ReLU(), dropout]
            width = hidden
        return nn.Sequential(*layers, nn.Linear(width, len(self.constants["classes"]) or 1))

    def scores(self, prices: Prices, symbol: int, network: nn.Module) -> Floats:
        """Return how much each bar indicates rising prices; NaN where too few bars lie before.

        Of a classifier the probability of up less that of down; of a regression the expected
        return, in standard deviations of those that it learned from.
        """
        inputs = self.inputs(prices, symbol)
        is_known = ~np.isnan(inputs).any(axis=1)
        given = torch.from_numpy(np.nan_to_num(inputs)).to(torch.float32)
        network.eval()
        with torch.no_grad():
            outputs = torch.cat([self._judge(network, each) for each in given.split(BATCH_BARS)])
        scores: Floats = outputs.to(torch.float64).numpy()
        return np.where(is_known, scores, np.nan)

    def _judge(self, network: nn.Module, bars: Tensor) -> Tensor:
        padded = nn.functional.pad(bars, (0, 0, 0, BATCH_BARS - len(bars)))
        outputs: Tensor = network(padded)[: len(bars)]
        classes = self.constants["classes"]
        if not classes:
            return outputs[:, 0]
        chances = outputs.softmax(dim=1)
        return chances[:, classes.index(UP)] - chances[:, classes.index(DOWN)]
