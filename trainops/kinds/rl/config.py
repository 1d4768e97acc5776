"""The config of a reinforcement learning operation."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import CheckpointConfig, OperationConfig, Strict
from trainops.runtime.errors import ConfigError

GYMNASIUM = "gymnasium"
MAX_NETWORKS = 256  # that are trained one after the other


class RlCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after episodes, steps or seconds, whichever is first."""

    every_episodes: int = Field(100, ge=1, description="Episodes between checkpoints.")
    finish_episode_seconds: float = Field(
        1.0,
        ge=0,
        le=20,
        description="Seconds a shutdown waits for the current episode to finish (single agent "
        "only); 0 saves mid-episode.",
    )


class PopulationConfig(Strict):
    """What agents have in common."""

    networks: Literal["shared", "separate"] = Field(
        "shared",
        description="shared: one network for all agents; separate: one per agent, trained on "
        "that agent's steps only.",
    )


class NetworkConfig(Strict):
    """The network that all agents share, or that each of them has."""

    hidden_sizes: list[int] = Field(
        [64, 64], max_length=10, description="Units of each hidden layer."
    )
    layer_norm: bool = Field(False, description="Apply layer normalization to each hidden layer.")
    memory_size: int = Field(
        64, ge=1, le=4096, description="Units of the LSTM (recurrent_dqn only)."
    )


class DqnConfig(Strict):
    """Learning from a replay buffer, for dqn and recurrent_dqn."""

    double: bool = Field(
        True,
        description="Double DQN: the online network selects the action, the target network "
        "evaluates it.",
    )
    dueling: bool = Field(
        False, description="Dueling network: separate value and advantage streams."
    )
    n_step: int = Field(1, ge=1, le=100, description="Number of rewards in an n-step return.")
    batch_size: int = Field(
        32, ge=1, le=1_000_000, description="Transitions per update; sequences for recurrent_dqn."
    )
    train_every: int = Field(4, ge=1, description="Steps between learning phases.")
    gradient_steps: int = Field(1, ge=1, le=10_000, description="Updates per learning phase.")
    learning_starts: int = Field(
        1000, ge=0, description="Transitions to collect before the first update."
    )
    target_every: int = Field(
        500, ge=1, description="Updates between copies of the network to the target network."
    )
    target_tau: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Soft update factor of the target network; replaces target_every.",
    )
    sequence_length: int = Field(
        8, ge=1, le=1000, description="Steps per training sequence (recurrent_dqn only)."
    )
    burn_in: int = Field(
        8,
        ge=0,
        le=1000,
        description="Steps before each sequence that warm up the LSTM state; they are not in the "
        "loss, but gradients flow through them (recurrent_dqn only).",
    )


def longest_sequence(dqn: DqnConfig) -> int:
    """Return the steps of a sequence: those before, those learned from, and what they look at."""
    return dqn.burn_in + dqn.sequence_length + dqn.n_step - 1


class ReplayConfig(Strict):
    """The ring of transitions; it lies on the device."""

    capacity: int = Field(
        50_000, ge=1, le=1_000_000_000, description="Number of transitions to keep."
    )
    prioritized: bool = Field(False, description="Prioritized replay: sample by the last TD error.")
    alpha: float = Field(0.6, ge=0, le=1, description="Priority exponent; 0 samples uniformly.")
    beta: float = Field(
        0.4,
        ge=0,
        le=1,
        description="Initial importance sampling exponent; 1 corrects the bias fully.",
    )
    beta_steps: int = Field(
        100_000, ge=1, description="Environment steps over which beta is annealed to 1."
    )
    eta: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Weight of the maximum TD error in a sequence's priority; the mean gets 1 - "
        "eta (R2D2).",
    )


class ExplorationConfig(Strict):
    """Epsilon: how often an agent of dqn or recurrent_dqn does something at random."""

    schedule: Literal["linear", "exponential"] = Field(
        "linear",
        description="linear: decay by environment steps; exponential: by finished episodes.",
    )
    start: float = Field(1.0, ge=0, le=1, description="Initial epsilon.")
    end: float = Field(0.05, ge=0, le=1, description="Final epsilon.")
    steps: int = Field(
        10_000,
        ge=1,
        description="Environment steps until the final epsilon (linear schedule only).",
    )
    decay: float = Field(
        0.99, gt=0, le=1, description="Decay factor per episode (exponential schedule only)."
    )


class PpoConfig(Strict):
    """Proximal policy optimization (Schulman et al. 2017)."""

    rollout_steps: int = Field(
        128, ge=1, le=100_000, description="Steps per agent in each rollout."
    )
    epochs: int = Field(4, ge=1, le=1000, description="Number of passes over each rollout.")
    batch_size: int = Field(64, ge=1, le=10_000_000, description="Transitions per update.")
    gae_lambda: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Lambda of GAE: 0 minimizes the variance of advantages, 1 their bias.",
    )
    clip: float = Field(0.2, gt=0, le=1, description="Clipping range of the policy ratio.")
    entropy_weight: float = Field(
        0.0, ge=0, le=10, description="Weight of the entropy bonus in the loss."
    )
    value_weight: float = Field(0.5, ge=0, le=10, description="Weight of the value loss.")


class NoveltyConfig(Strict):
    """Random network distillation (Burda et al. 2018): a reward for what was rarely seen."""

    weight: float = Field(
        0.0, ge=0, le=100, description="Initial weight of the novelty bonus; 0 disables it."
    )
    end: float = Field(0.0, ge=0, le=100, description="Final weight of the novelty bonus.")
    steps: int = Field(
        50_000,
        ge=1,
        description="Environment steps over which the weight moves from initial to final.",
    )
    embedding: int = Field(
        16, ge=1, le=4096, description="Output size of the target and predictor networks."
    )
    learning_rate: float = Field(
        1e-4, gt=0, le=1, description="Learning rate of the predictor network."
    )


class Stage(Strict):
    """How hard the world is."""

    max_steps: int | None = Field(
        None,
        ge=1,
        description="Maximum steps per episode; by default the limit of the environment.",
    )
    depletion: float = Field(
        1.0, ge=0, le=100, description="Factor on the depletion rate of meters."
    )


class CurriculumConfig(Strict):
    """Which stage each agent is at."""

    rule: Literal["none", "adaptive", "adversarial"] = Field(
        "none",
        description="adaptive: stages advance and retreat by survival; adversarial: each "
        "episode's stage is sampled by estimated regret.",
    )
    stages: list[Stage] = Field([], max_length=100, description="Stages from easy to hard.")
    window: int = Field(
        20, ge=2, le=10_000, description="Number of latest episodes that the rule considers."
    )
    min_episodes: int = Field(
        10, ge=1, description="Minimum episodes at a stage before it changes (adaptive only)."
    )
    advance_at: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Mean share of the episode survived at or above which the stage advances.",
    )
    retreat_at: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Mean share of the episode survived at or below which the stage retreats.",
    )
    max_entropy: float = Field(
        1.0, ge=0, le=1, description="Maximum mean entropy of actions to advance."
    )
    temperature: float = Field(
        0.3, gt=0, le=100, description="Temperature of the rank-based sampling (adversarial only)."
    )


class EvaluationConfig(Strict):
    """Episodes without exploration, on seeds of their own, that change nothing in training."""

    every_steps: int = Field(2500, ge=1, description="Steps between evaluations.")
    episodes: int = Field(
        10, ge=1, le=10_000, description="Number of episodes per evaluation, run in parallel."
    )
    max_frames: int = Field(
        500, ge=1, le=2000, description="Maximum frames of the recorded episode."
    )


class RlConfig(RecipeConfig):
    """A world, the agents in it, and how they learn."""

    kind: ClassVar[str] = "rl"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "environment_steps", "episodes", "learning_rate", "max_grad_norm", "discount",
        "exploration", "replay", "evaluation", "log_every_steps", "open_episodes",
    }  # fmt: skip

    algorithm: Literal["dqn", "recurrent_dqn", "ppo"] = Field(
        "dqn", description="Learning algorithm."
    )
    agents: int = Field(
        1, ge=1, le=1_000_000, description="Number of agents, each in its own environment."
    )
    environment_steps: int = Field(
        50_000, ge=1, le=10**12, description="Total environment steps of all agents."
    )
    episodes: int | None = Field(
        None,
        ge=1,
        description="Maximum number of episodes; training ends at whichever limit comes first.",
    )
    discount: float = Field(
        0.99, ge=0, le=1, description="Discount factor of future rewards (gamma)."
    )
    learning_rate: float = Field(
        1e-3, gt=0, le=10, description="Learning rate of the optimizer (Adam)."
    )
    anneal: bool = Field(
        False, description="Anneal the learning rate and PPO's clipping range linearly to 0."
    )
    max_grad_norm: float | None = Field(
        10.0, gt=0, description="Maximum gradient norm for clipping; empty: no clipping."
    )
    population: PopulationConfig = PopulationConfig()
    network: NetworkConfig = NetworkConfig()
    dqn: DqnConfig = DqnConfig()
    replay: ReplayConfig = ReplayConfig()
    exploration: ExplorationConfig = ExplorationConfig()
    ppo: PpoConfig = PpoConfig()
    novelty: NoveltyConfig = NoveltyConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    open_episodes: Literal["kept", "flushed"] = Field(
        "kept",
        description="Episodes open at a resume: kept continues them, flushed cuts them and "
        "starts new ones.",
    )
    log_every_steps: int = Field(250, ge=1, description="Steps between points of the curves.")
    monitor: Literal["evaluation_return"] = Field(
        "evaluation_return", description="Metric that selects the best checkpoint."
    )
    mode: Literal["max"] = Field("max", description="Higher values of the metric are better.")
    checkpoint: RlCheckpointConfig = RlCheckpointConfig()

    @property
    def vector_steps(self) -> int:
        """Steps that all agents take at once."""
        return -(-self.environment_steps // self.agents)

    @property
    def is_separate(self) -> bool:
        """Whether each agent has a network of its own."""
        return self.population.networks == "separate"

    @property
    def ring_capacity(self) -> int:
        """Transitions of all agents that are kept: of ppo, one rollout."""
        is_rollout = self.algorithm == "ppo"
        return self.ppo.rollout_steps * self.agents if is_rollout else self.replay.capacity

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Return the config. `recipe: gymnasium:ID` is another way to say the parameter id."""
        recipe: Any = dict(raw).get("recipe") if isinstance(raw, dict) else None
        if isinstance(recipe, str) and recipe.startswith(f"{GYMNASIUM}:"):
            given = raw.get("parameters", {})
            if isinstance(given, Mapping):
                name = recipe.partition(":")[2]
                raw = {**raw, "recipe": GYMNASIUM, "parameters": {"id": name, **given}}
        config = super().parse(raw)
        if errors := dict(_contradictions(config)):
            raise ConfigError(errors)
        return config

    def require_forkable(self, before: OperationConfig) -> None:
        """Allow a ring of another capacity, whose newest transitions are taken over."""
        super().require_forkable(before)
        if not isinstance(before, RlConfig):
            return
        if self.replay.prioritized != before.replay.prioritized:
            problem = f"got {self.replay.prioritized}; a fork keeps {before.replay.prioritized}"
            raise ConfigError({"replay.prioritized": problem})
        if self.anneal and self.environment_steps != before.environment_steps:
            problem = (
                f"got {self.environment_steps}; a fork with anneal keeps {before.environment_steps}"
            )
            raise ConfigError({"environment_steps": problem})


def _contradictions(config: RlConfig) -> list[tuple[str, str]]:
    found = [*_of_replay(config), *_of_ppo(config), *_of_curriculum(config)]
    if any(size < 1 for size in config.network.hidden_sizes):
        found.append(
            ("network.hidden_sizes", f"got {config.network.hidden_sizes}; each must be at least 1")
        )
    if config.is_separate and config.agents > MAX_NETWORKS:
        problem = f"got {config.agents}; allowed with separate networks: at most {MAX_NETWORKS}"
        found.append(("agents", problem))
    return found


def _of_ppo(config: RlConfig) -> list[tuple[str, str]]:
    if config.algorithm != "ppo":
        return []
    what = "rollout_steps" if config.is_separate else "rollout_steps times agents"
    most = config.ppo.rollout_steps * (1 if config.is_separate else config.agents)
    if config.ppo.batch_size > most:
        return [("ppo.batch_size", f"got {config.ppo.batch_size}; allowed: at most {what}, {most}")]
    return []


def _of_replay(config: RlConfig) -> list[tuple[str, str]]:
    if config.algorithm == "ppo":
        if config.replay.prioritized:
            return [
                (
                    "replay.prioritized",
                    "got True; ppo has no replay buffer; allowed with dqn and recurrent_dqn",
                )
            ]
        return []
    is_of_steps = config.algorithm == "dqn"
    window = config.dqn.n_step if is_of_steps else longest_sequence(config.dqn)
    if config.replay.capacity < window * config.agents:
        least = f"at least {window} steps of {config.agents} agents"
        return [("replay.capacity", f"got {config.replay.capacity}; allowed: {least}")]
    return []


def _of_curriculum(config: RlConfig) -> list[tuple[str, str]]:
    rule, stages = config.curriculum.rule, config.curriculum.stages
    if rule != "none" and len(stages) < 2:
        return [("curriculum.stages", f"got {len(stages)}; {rule} requires at least 2")]
    if config.curriculum.retreat_at >= config.curriculum.advance_at:
        problem = f"got {config.curriculum.retreat_at}; must be below advance_at"
        return [("curriculum.retreat_at", problem)]
    return []
