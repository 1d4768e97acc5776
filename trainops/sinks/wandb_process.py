"""`python -m trainops.sinks.wandb_process`: write the run that stdin describes.

The first line is the run, each further one a row of its history, as JSON. The file is complete
when the process exits with 0; the service that wandb starts ends with the process.
"""

import json
import sys

import wandb

from trainops.process.kinship import die_with

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
    request = json.loads(sys.stdin.readline())
    die_with(request.pop("parent"))
    step, exit_code = request.pop("step"), request.pop("exit_code")
    run = wandb.init(mode="offline", settings=SETTINGS, **request)
    run.define_metric(step, hidden=True)
    run.define_metric("*", step_metric=step)
    for line in sys.stdin:
        run.log(json.loads(line))
    run.finish(exit_code=exit_code)
    wandb.teardown(exit_code=0)


if __name__ == "__main__":
    main()
