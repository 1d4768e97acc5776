"""The files of federated training: those of another tool, and our own checkpoints."""

from trainops.files.kind_files import Export, KindFiles

HERE = "trainops.kinds.federated.files"

FILES = KindFiles(
    formats=(f"{HERE}.format:FEDERATED",),
    take_in=f"{HERE}.exchange:take_in",
    export=Export(write=f"{HERE}.exchange:write", has_best=True),
    checks=f"{HERE}.state:CHECKS",
)
