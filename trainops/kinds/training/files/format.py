"""How files of training are read and written: format version 1, and models without a training."""

import re

from trainops.files.description import FileFormat, Weights
from trainops.kinds.training.files.file import (
    COMPARED,
    TrainingFile,
    check_version,
    check_weights,
    disagreements,
    parse,
    parse_weights,
    to_tree,
    warnings,
)

TITLE = "training"


def describe(file: TrainingFile) -> str:
    legacy = f"; older layout with {', '.join(file.was_legacy)}" if file.was_legacy else ""
    return f"epoch {file.epoch}, step {file.global_step}{legacy}"


def weights(file: TrainingFile) -> Weights:
    return Weights("last model", file.model)


TRAINING = FileFormat(
    file=TrainingFile,
    title=TITLE,
    hint="a training file has model_state_dict",
    marks=(frozenset({"model_state_dict"}),),
    has_enums=True,
    named=re.compile(r"epoch_(\d+)_step_(\d+)\.ckpt"),
    named_like="epoch_NNN_step_NNNNNN.ckpt",
    check_version=check_version,
    parse=parse,
    to_tree=to_tree,
    describe=describe,
    disagreements=disagreements,
    warnings=warnings,
    compared=COMPARED,
    weights=weights,
)

WEIGHTS = FileFormat(
    file=TrainingFile,
    title=TITLE,
    hint="a model nothing but tensors",
    is_of_tensors=True,
    check_version=check_weights,
    parse=parse_weights,
    to_tree=to_tree,
    describe=lambda file: f"{len(file.model)} tensors",
    disagreements=disagreements,
    compared="nothing to compare: only a job knows the shapes of its model",
    weights=weights,
)
