"""`python -m trainops.sinks.wandb_process`: write the run that stdin describes.

The first line is a `WandbRun`, each further one a `WandbRow` of its history. The file is complete
when the process exits with 0; the service that wandb starts ends with the process.
"""

import sys

import wandb

from trainops.messages import MessageReader
from trainops.process.kinship import die_with
from trainops.sinks.wandb_messages import WandbRow, WandbRun

SETTINGS = wandb.Settings(
    console="off",
    disable_code=True,
    disable_git=True,
    silent=True,
    # What it would find is about this machine, not about the one that computed the operation.
    x_disable_meta=True,
    x_disable_stats=True,
    x_save_requirements=False,
)


def main() -> None:
    request = MessageReader[WandbRun](WandbRun).read(sys.stdin.buffer.readline())
    die_with(request.parent)
    run = wandb.init(
        mode="offline",
        settings=SETTINGS,
        id=request.id,
        project=request.project,
        name=request.name,
        job_type=request.job_type,
        tags=request.tags,
        config=request.config,
    )
    run.define_metric(request.step, hidden=True)
    run.define_metric("*", step_metric=request.step)
    rows = MessageReader[WandbRow](WandbRow)
    for line in sys.stdin.buffer:
        row = rows.read(line)
        run.log({request.step: row.step, **row.values})
    run.finish(exit_code=request.exit_code)
    wandb.teardown(exit_code=0)


if __name__ == "__main__":
    main()
