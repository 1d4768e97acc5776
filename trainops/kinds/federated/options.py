"""The fields of a federated config."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import CheckpointConfig, OperationConfig, Strict
from trainops.runtime.implementation import is_plain

Strategy = Literal[
    "fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "median", "trimmed_mean"
]


# Strings: the second imports Opacus, and both are imported before random streams are seeded.
MEASURES = {
    "rdp": "trainops.kinds.federated.accounting:measured",
    "prv": "trainops.kinds.federated.prv_accountant:measured",
}


PLAIN = "trainops.kinds.federated.plain:losses_of"
EVERY_OTHER, NUMBER = "*", "{client}"  # in `labels`


class FederatedCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after client epochs or seconds, whichever is first."""

    every_client_epochs: int = Field(1, ge=1, description="Client epochs between checkpoints.")


class PartitionConfig(Strict):
    """Which client has which examples."""

    by: Literal["iid", "dirichlet", "shards", "column", "file"] = Field(
        "iid",
        description="iid: random; dirichlet: uneven shares of each class; shards: few classes "
        "per client; column: one client per value; file: one client per table.",
    )
    alpha: float = Field(
        0.5,
        gt=0,
        le=1e6,
        description="Dirichlet concentration (dirichlet only); smaller values are more uneven.",
    )
    shards_per_client: int = Field(
        2, ge=1, le=1000, description="Number of shards per client (shards only)."
    )
    column: str = Field("", description="Name of the column (column only); label for images.")
    min_examples: int = Field(2, ge=1, description="Minimum number of examples per client.")


class ServerConfig(Strict):
    """How the server makes a new model of what the clients send."""

    strategy: Strategy = Field(
        "fedavg", description="Strategy that aggregates client updates into the next model."
    )
    learning_rate: float = Field(
        1.0, gt=0, le=100, description="Learning rate of the server's step."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Server momentum (fedavgm only).")
    beta_1: float = Field(
        0.9, ge=0, lt=1, description="First moment decay (fedadam and fedyogi only)."
    )
    beta_2: float = Field(
        0.99, ge=0, lt=1, description="Second moment decay (fedadam and fedyogi only)."
    )
    tau: float = Field(
        1e-3, gt=0, le=1, description="Adaptivity constant (fedadam, fedyogi and fedadagrad only)."
    )
    proximal: float = Field(
        0.1, ge=0, le=1000, description="Weight of the proximal term (fedprox only)."
    )
    trim: float = Field(
        0.1,
        ge=0,
        lt=0.5,
        description="Share of values trimmed at each end, rounded down to whole clients "
        "(trimmed_mean only).",
    )


class PrivacyConfig(Strict):
    """Whose privacy is kept, by how much noise, and how much of it may be spent."""

    mode: Literal["none", "sample", "user", "hybrid"] = Field(
        "none", description="Privacy unit. sample: each example; user: each client; hybrid: both."
    )
    target_epsilon: float | None = Field(
        None,
        gt=0,
        le=1000,
        description="Privacy budget; the run stops before a step would exceed it.",
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="Delta of (epsilon, delta)-differential privacy."
    )
    noise_multiplier: float | None = Field(
        None,
        gt=0,
        le=1000,
        description="Noise multiplier of each step's gradients; by default derived from "
        "target_epsilon.",
    )
    max_grad_norm: float = Field(
        1.0, ge=1e-6, le=1e12, description="Maximum norm of each example's gradient for clipping."
    )
    user_noise_multiplier: float | None = Field(
        None,
        gt=0,
        le=1000,
        description="Noise multiplier of each round's sum; by default derived from target_epsilon.",
    )
    max_update_norm: float = Field(
        1.0, ge=1e-6, le=1e12, description="Maximum norm of each client's update for clipping."
    )
    accountant: Literal["rdp", "prv"] = Field(
        "rdp",
        description="rdp: Renyi accounting, fast; prv: tighter bounds, up to a few seconds per "
        "epsilon. Above epsilon 100, or with too many steps, prv reports the "
        "epsilon of rdp.",
    )


class FederatedOptions(RecipeConfig):
    """A recipe, the clients that its examples lie with, and how they learn together."""

    kind: ClassVar[str] = "federated"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "rounds", "learning_rate", "placement", "labels", "round_timeout",
    }  # fmt: skip

    rounds: int = Field(10, ge=1, le=100_000, description="Number of rounds.")
    clients: int = Field(
        10,
        ge=1,
        le=100_000,
        description="Number of clients; ignored when partitioned by column or file.",
    )
    fraction: float = Field(1.0, gt=0, le=1, description="Fraction of the clients in each round.")
    min_clients: int = Field(1, ge=1, description="Minimum number of clients per round.")
    local_epochs: int = Field(1, ge=1, le=10_000, description="Epochs per client and round.")
    batch_size: int = Field(32, ge=1, le=1_000_000, description="Number of examples per batch.")
    batched_clients: bool = Field(
        False,
        description="Train all clients of a round in one batch: faster for small models; "
        "results differ in the last bits.",
    )
    optimizer: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="Optimizer of the clients."
    )
    learning_rate: float = Field(0.05, gt=0, le=100, description="Learning rate of the clients.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of the clients (sgd only).")
    weight_decay: float = Field(0.0, ge=0, le=10, description="Weight decay of the clients.")
    partition: PartitionConfig = PartitionConfig()
    server: ServerConfig = ServerConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    monitor: str = Field(
        "val_loss",
        pattern=r"^(train|val)_[a-z][a-z0-9_]*$",
        description="Metric of completed rounds that selects the best model.",
    )
    mode: Literal["min", "max"] = Field(
        "min", description="Whether lower (min) or higher (max) values of the metric are better."
    )
    placement: Literal["in_process", "distributed"] = Field(
        "in_process",
        description="distributed: each client of a round trains in its own task, on any "
        "eligible worker; the results are the same.",
    )
    labels: dict[str, str] = Field(
        {},
        description='Worker label by client number (distributed only); "*" matches all other '
        "clients, {client} in a label is the number. Clients without a label use "
        "the label of the operation.",
        examples=[{"0": "hospital-a", "*": "client-{client}"}],
    )
    round_timeout: float | None = Field(
        None,
        gt=0,
        description="Seconds after which a round proceeds without unfinished clients, as soon "
        "as min_clients have finished (distributed only); by default never.",
    )
    checkpoint: FederatedCheckpointConfig = FederatedCheckpointConfig()

    @property
    def is_distributed(self) -> bool:
        return self.placement == "distributed"

    def label_of(self, client: int) -> str:
        """Return the label of the workers that may train a client; empty: the server's."""
        label = self.labels.get(str(client), self.labels.get(EVERY_OTHER, ""))
        return label.replace(NUMBER, str(client))

    def code(self) -> Sequence[str]:
        plain = (PLAIN,) if is_plain() else ()  # part of what names a release
        return (*super().code(), MEASURES[self.privacy.accountant], *plain)

    @property
    def has_samples_noised(self) -> bool:
        return self.privacy.mode in ("sample", "hybrid")

    @property
    def has_users_noised(self) -> bool:
        return self.privacy.mode in ("user", "hybrid")

    @property
    def is_private(self) -> bool:
        return self.privacy.mode != "none"
