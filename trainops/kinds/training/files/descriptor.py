"""The files of training: those of another tool, directories of a third, and our own checkpoints."""

from trainops.files.kind_files import Export, KindFiles

HERE = "trainops.kinds.training.files"

FILES = KindFiles(
    formats=(f"{HERE}.format:TRAINING", f"{HERE}.format:WEIGHTS"),
    directories=(f"{HERE}.step_directory:DIRECTORY",),
    take_in=f"{HERE}.exchange:take_in",
    export=Export(write=f"{HERE}.exchange:write"),
    checks=f"{HERE}.checks:CHECKS",
)
