"""The fields of a federated config."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import CheckpointConfig, OperationConfig, Strict

Strategy = Literal[
    "fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "median", "trimmed_mean"
]


# Strings: the second imports Opacus, and both are imported before random streams are seeded.
MEASURES = {
    "rdp": "trainops.kinds.federated.accounting:measured",
    "prv": "trainops.kinds.federated.tight:measured",
}


EVERY_OTHER, NUMBER = "*", "{client}"  # in `labels`


class FederatedCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after client epochs or seconds, whichever is first."""

    every_client_epochs: int = Field(
        1, ge=1, description="A checkpoint after so many client epochs"
    )


class PartitionConfig(Strict):
    """Which client has which examples."""

    by: Literal["iid", "dirichlet", "shards", "column", "file"] = Field(
        "iid",
        description="dirichlet: uneven shares of each class; shards: few classes each; "
        "column: one client for each value; file: one for each table",
    )
    alpha: float = Field(0.5, gt=0, le=1e6, description="Of dirichlet: smaller is more uneven")
    shards_per_client: int = Field(2, ge=1, le=1000, description="Of shards")
    column: str = Field("", description="Of column: its name; for images: label")
    min_examples: int = Field(2, ge=1, description="A client has at least so many")


class ServerConfig(Strict):
    """How the server makes a new model of what the clients send."""

    strategy: Strategy = Field("fedavg", description="How updates become the next model")
    learning_rate: float = Field(1.0, gt=0, le=100, description="Of the server's own step")
    momentum: float = Field(0.9, ge=0, lt=1, description="Of fedavgm")
    beta_1: float = Field(0.9, ge=0, lt=1, description="Of fedadam and fedyogi")
    beta_2: float = Field(0.99, ge=0, lt=1, description="Of fedadam and fedyogi")
    tau: float = Field(1e-3, gt=0, le=1, description="Of fedadam, fedyogi, fedadagrad: adaptivity")
    proximal: float = Field(
        0.1, ge=0, le=1000, description="Of fedprox: pull to the server's model"
    )
    trim: float = Field(0.1, ge=0, lt=0.5, description="Of trimmed_mean: share cut at each end")


class PrivacyConfig(Strict):
    """Whose privacy is kept, by how much noise, and how much of it may be spent."""

    mode: Literal["none", "sample", "user", "hybrid"] = Field(
        "none", description="sample: each example; user: each client as a whole; hybrid: both"
    )
    target_epsilon: float | None = Field(
        None, gt=0, le=1000, description="The budget: the run stops before a step would exceed it"
    )
    delta: float = Field(1e-5, gt=0, lt=1)
    noise_multiplier: float | None = Field(
        None, gt=0, le=1000, description="Of each step's gradients; found from the budget if none"
    )
    max_grad_norm: float = Field(
        1.0, ge=1e-6, le=1e12, description="Each example's gradient is clipped to it"
    )
    user_noise_multiplier: float | None = Field(
        None, gt=0, le=1000, description="Of each round's sum; found from the budget if none"
    )
    max_update_norm: float = Field(
        1.0, ge=1e-6, le=1e12, description="Each client's update is clipped to it"
    )
    accountant: Literal["rdp", "prv"] = Field(
        "rdp",
        description="prv: tighter, up to some seconds for each epsilon; above epsilon 100, or "
        "with too many steps, the epsilon of rdp is reported",
    )


class FederatedOptions(RecipeConfig):
    """A recipe, the clients that its examples lie with, and how they learn together."""

    kind: ClassVar[str] = "federated"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "rounds", "learning_rate", "placement", "labels", "round_timeout",
    }  # fmt: skip

    rounds: int = Field(10, ge=1, le=100_000)
    clients: int = Field(
        10, ge=1, le=100_000, description="By column or file: as many as there are"
    )
    fraction: float = Field(1.0, gt=0, le=1, description="Share of the clients in each round")
    min_clients: int = Field(1, ge=1, description="In each round at least so many")
    local_epochs: int = Field(1, ge=1, le=10_000, description="Of a client in each round")
    batch_size: int = Field(32, ge=1, le=1_000_000, description="Examples in a batch")
    batched_clients: bool = Field(
        False,
        description="All clients of a round at once: faster for small models; other last "
        "bits than one after the other",
    )
    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="Of the clients")
    learning_rate: float = Field(0.05, gt=0, le=100, description="Of the clients")
    momentum: float = Field(0.0, ge=0, lt=1, description="Of sgd")
    weight_decay: float = Field(0.0, ge=0, le=10)
    partition: PartitionConfig = PartitionConfig()
    server: ServerConfig = ServerConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    monitor: str = Field(
        "val_loss",
        pattern=r"^(train|val)_[a-z][a-z0-9_]*$",
        description="The metric of completed rounds that decides which model is the best",
    )
    mode: Literal["min", "max"] = Field("min", description="Whether a better metric is lower")
    placement: Literal["in_process", "distributed"] = Field(
        "in_process",
        description="distributed: each client of a round is trained by a task of its own, on any "
        "worker that may; the results are the same",
    )
    labels: dict[str, str] = Field(
        {},
        description="Of distributed: the label of the workers that may train a client, by its "
        'number; "*" stands for all others, and {client} in a label for the number. Who has none '
        "goes where the server was asked to",
        examples=[{"0": "hospital-a", "*": "client-{client}"}],
    )
    round_timeout: float | None = Field(
        None,
        gt=0,
        description="Of distributed: seconds after which a round goes on without the clients that "
        "are not done, as soon as min_clients are",
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
        return (*super().code(), MEASURES[self.privacy.accountant])

    @property
    def has_samples_noised(self) -> bool:
        return self.privacy.mode in ("sample", "hybrid")

    @property
    def has_users_noised(self) -> bool:
        return self.privacy.mode in ("user", "hybrid")

    @property
    def is_private(self) -> bool:
        return self.privacy.mode != "none"
