"""The files of reinforcement learning: those of another tool, and our own checkpoints."""

from trainops.files.kind_files import Export, KindFiles

HERE = "trainops.kinds.rl.files"

FILES = KindFiles(
    formats=(f"{HERE}.format:AGENTS",),
    take_in=f"{HERE}.exchange:take_in",
    export=Export(write=f"{HERE}.exchange:write", takes_agent=True),
    checks=f"{HERE}.state:CHECKS",
)
