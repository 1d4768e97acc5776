"""The files of evaluations: scores as a file for other programs, and as a table. Without torch."""

from trainops.files.kind_files import Export, KindFiles

SCORES = "trainops_evaluation.scores"

FILES = KindFiles(
    formats=(f"{SCORES}:FORMAT",),
    export=Export(write=f"{SCORES}:write"),
    checks=f"{SCORES}:CHECKS",
    tables={"scores": f"{SCORES}:table"},
)
