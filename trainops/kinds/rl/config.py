"""What a reinforcement learning operation can be told."""

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

    every_episodes: int = Field(100, ge=1, description="A checkpoint after so many episodes")
    finish_episode_seconds: float = Field(
        1.0,
        ge=0,
        le=20,
        description="For how long a shutdown waits until a single agent's episode has ended; 0: it "
        "is saved in its midst at once",
    )


class PopulationConfig(Strict):
    """What agents have in common."""

    networks: Literal["shared", "separate"] = Field(
        "shared", description="One for all, or each its own, learning from its own steps only"
    )


class NetworkConfig(Strict):
    """The network that all agents share, or that each of them has."""

    hidden_sizes: list[int] = Field([64, 64], max_length=10, description="Units of hidden layers")
    layer_norm: bool = Field(False, description="Normalise each hidden layer")
    memory_size: int = Field(64, ge=1, le=4096, description="Units of recurrent_dqn's LSTM")


class DqnConfig(Strict):
    """Learning from a replay buffer, for dqn and recurrent_dqn."""

    double: bool = Field(True, description="The learning network chooses what the target values")
    dueling: bool = Field(False, description="Value and advantages in two streams")
    n_step: int = Field(1, ge=1, le=100, description="Rewards before the target's own estimate")
    batch_size: int = Field(32, ge=1, le=1_000_000, description="Transitions, or sequences")
    train_every: int = Field(4, ge=1, description="Steps between two times of learning")
    gradient_steps: int = Field(1, ge=1, le=10_000, description="Updates each time")
    learning_starts: int = Field(1000, ge=0, description="Transitions before the first update")
    target_every: int = Field(500, ge=1, description="Updates between two copies to the target")
    target_tau: float | None = Field(
        None, gt=0, le=1, description="Instead, the target moves by this share at each update"
    )
    sequence_length: int = Field(8, ge=1, le=1000, description="Steps that a sequence learns from")
    burn_in: int = Field(8, ge=0, le=1000, description="Steps before them that only fill memory")


def longest_sequence(dqn: DqnConfig) -> int:
    """Return the steps of a sequence: those before, those learned from, and what they look at."""
    return dqn.burn_in + dqn.sequence_length + dqn.n_step - 1


class ReplayConfig(Strict):
    """The ring of transitions; it lies on the device."""

    capacity: int = Field(50_000, ge=1, le=1_000_000_000, description="Transitions kept")
    prioritized: bool = Field(False, description="Draw by the size of the last error")
    alpha: float = Field(0.6, ge=0, le=1, description="How much priorities decide; 0: not at all")
    beta: float = Field(0.4, ge=0, le=1, description="How much their bias is corrected at first")
    beta_steps: int = Field(100_000, ge=1, description="Environment steps until it is wholly")
    eta: float = Field(
        0.9, ge=0, le=1, description="Of a sequence's largest error; the rest is of their mean"
    )


class ExplorationConfig(Strict):
    """Epsilon: how often an agent of dqn or recurrent_dqn does something at random."""

    schedule: Literal["linear", "exponential"] = Field(
        "linear", description="By environment steps, or by finished episodes"
    )
    start: float = Field(1.0, ge=0, le=1)
    end: float = Field(0.05, ge=0, le=1)
    steps: int = Field(10_000, ge=1, description="Of linear: environment steps to the end")
    decay: float = Field(0.99, gt=0, le=1, description="Of exponential: factor for each episode")


class PpoConfig(Strict):
    """Proximal policy optimization (Schulman et al. 2017)."""

    rollout_steps: int = Field(128, ge=1, le=100_000, description="Steps of each agent to learn by")
    epochs: int = Field(4, ge=1, le=1000, description="Passes over a rollout")
    batch_size: int = Field(64, ge=1, le=10_000_000, description="Transitions in an update")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="Bias against variance of advantages")
    clip: float = Field(0.2, gt=0, le=1, description="How far the policy may move in an update")
    entropy_weight: float = Field(0.0, ge=0, le=10)
    value_weight: float = Field(0.5, ge=0, le=10)


class NoveltyConfig(Strict):
    """Random network distillation (Burda et al. 2018): a reward for what was rarely seen."""

    weight: float = Field(0.0, ge=0, le=100, description="Of the reward at first; 0: none")
    end: float = Field(0.0, ge=0, le=100, description="Of the reward at last")
    steps: int = Field(50_000, ge=1, description="Environment steps from first to last")
    embedding: int = Field(16, ge=1, le=4096, description="Outputs of the two networks")
    learning_rate: float = Field(1e-4, gt=0, le=1)


class Stage(Strict):
    """How hard the world is."""

    max_steps: int | None = Field(None, ge=1, description="Steps of an episode; the world's own")
    depletion: float = Field(1.0, ge=0, le=100, description="Factor on how fast meters deplete")


class CurriculumConfig(Strict):
    """Which stage each agent is at."""

    rule: Literal["none", "adaptive", "adversarial"] = Field(
        "none", description="adversarial: drawn for each episode, by what the agent might gain"
    )
    stages: list[Stage] = Field([], max_length=100, description="From easy to hard")
    window: int = Field(20, ge=2, le=10_000, description="Episodes that decide")
    min_episodes: int = Field(10, ge=1, description="At a stage before it changes")
    advance_at: float = Field(0.8, ge=0, le=1, description="Share of the episode survived")
    retreat_at: float = Field(0.2, ge=0, le=1)
    max_entropy: float = Field(1.0, ge=0, le=1, description="Of actions, to advance")
    temperature: float = Field(0.3, gt=0, le=100, description="Of adversarial's draw, by rank")


class EvaluationConfig(Strict):
    """Episodes without exploration, on seeds of their own, that change nothing in training."""

    every_steps: int = Field(2500, ge=1, description="Steps between two evaluations")
    episodes: int = Field(10, ge=1, le=10_000, description="Played side by side")
    max_frames: int = Field(500, ge=1, le=2000, description="Of the recorded episode")


class RlConfig(RecipeConfig):
    """A world, the agents in it, and how they learn."""

    kind: ClassVar[str] = "rl"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "environment_steps", "episodes", "learning_rate", "max_grad_norm", "discount",
        "exploration", "replay", "evaluation", "log_every_steps", "open_episodes",
    }  # fmt: skip

    algorithm: Literal["dqn", "recurrent_dqn", "ppo"] = "dqn"
    agents: int = Field(1, ge=1, le=1_000_000, description="Each in an environment of its own")
    environment_steps: int = Field(
        50_000, ge=1, le=10**12, description="After so many, of all agents together, it ends"
    )
    episodes: int | None = Field(None, ge=1, description="It ends after so many, if that is sooner")
    discount: float = Field(0.99, ge=0, le=1, description="What the next step's reward is worth")
    learning_rate: float = Field(1e-3, gt=0, le=10)
    anneal: bool = Field(False, description="Learning rate and PPO's clip go linearly to 0")
    max_grad_norm: float | None = Field(10.0, gt=0)
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
        "kept", description="By a resume: they go on, or are cut there and new ones begin"
    )
    log_every_steps: int = Field(250, ge=1, description="Steps between two points of the curves")
    monitor: Literal["evaluation_return"] = Field(
        "evaluation_return", description="The metric by which checkpoints are compared"
    )
    mode: Literal["max"] = Field("max", description="More of it is better")
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
            told = f"got {self.replay.prioritized}; a fork keeps {before.replay.prioritized}"
            raise ConfigError({"replay.prioritized": told})
        if self.anneal and self.environment_steps != before.environment_steps:
            told = f"got {self.environment_steps}; anneal rests on {before.environment_steps}"
            raise ConfigError({"environment_steps": told})


def _contradictions(config: RlConfig) -> list[tuple[str, str]]:
    found = [*_of_replay(config), *_of_ppo(config), *_of_curriculum(config)]
    if any(size < 1 for size in config.network.hidden_sizes):
        found.append(
            ("network.hidden_sizes", f"got {config.network.hidden_sizes}; each at least 1")
        )
    if config.is_separate and config.agents > MAX_NETWORKS:
        told = f"got {config.agents}; at most {MAX_NETWORKS} with population.networks separate"
        found.append(("agents", told))
    return found


def _of_ppo(config: RlConfig) -> list[tuple[str, str]]:
    if config.algorithm != "ppo":
        return []
    told = "rollout_steps" if config.is_separate else "rollout_steps times agents"
    most = config.ppo.rollout_steps * (1 if config.is_separate else config.agents)
    if config.ppo.batch_size > most:
        return [("ppo.batch_size", f"got {config.ppo.batch_size}; at most {told}, {most}")]
    return []


def _of_replay(config: RlConfig) -> list[tuple[str, str]]:
    if config.algorithm == "ppo":
        if config.replay.prioritized:
            return [("replay.prioritized", "got True; ppo has no replay; allowed with dqn")]
        return []
    is_of_steps = config.algorithm == "dqn"
    window = config.dqn.n_step if is_of_steps else longest_sequence(config.dqn)
    if config.replay.capacity < window * config.agents:
        told = f"got {config.replay.capacity}; at least {window} steps of {config.agents} agents"
        return [("replay.capacity", told)]
    return []


def _of_curriculum(config: RlConfig) -> list[tuple[str, str]]:
    rule, stages = config.curriculum.rule, config.curriculum.stages
    if rule != "none" and len(stages) < 2:
        return [("curriculum.stages", f"got {len(stages)}; {rule} needs at least 2")]
    if config.curriculum.retreat_at >= config.curriculum.advance_at:
        told = f"got {config.curriculum.retreat_at}; below advance_at"
        return [("curriculum.retreat_at", told)]
    return []
