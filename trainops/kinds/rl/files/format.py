"""How files of reinforcement learning are read and written: version 3."""

import re

from trainops.files.description import FileFormat, Weights
from trainops.kinds.rl.files.file import RlFile, check_version, disagreements, to_tree
from trainops.kinds.rl.files.parsing import parse

AGENTS = FileFormat(
    file=RlFile,
    title="reinforcement learning",
    hint="one of reinforcement learning population_state",
    marks=(frozenset({"population_state"}), frozenset({"version", "episode"})),
    has_digest=True,
    named=re.compile(r"checkpoint_ep(\d+)\.pt"),
    named_like="checkpoint_epNNNNN.pt",
    check_version=check_version,
    parse=parse,
    to_tree=to_tree,
    describe=lambda file: f"episode {file.episode}, {file.population.total_steps} steps",
    disagreements=disagreements,
    weights=lambda file: Weights("q_network", file.population.q_network),
)
