"""What is checked of our own checkpoints of training."""

from trainops.files.description import FitCheck, StateChecks
from trainops.files.fields import Fields
from trainops.files.optimizers import read_optimizer, read_scheduler
from trainops.kinds.training.files.state import compare_with_fresh, contradictions, fresh_of

CURSOR = ("epoch", "next_batch", "optimizer_steps", "samples_seen")


def check_fields(parts: Fields, state: Fields) -> None:
    cursor = state.within("cursor")
    for name in CURSOR:
        cursor.integer(name)
    state.integer("global_step")
    state.number("learning_rate", at_least=0)
    parts.tensors("model")
    parts.within("random")
    optimizers = parts.each("optimizer")
    for optimizer in optimizers:
        read_optimizer(optimizer)
    if not optimizers:
        parts.wrong("optimizer", "is empty; there must be at least one")
    if parts.has("scheduler"):
        for scheduler in parts.each("scheduler"):
            read_scheduler(scheduler)


CHECKS = StateChecks(
    mark="cursor",
    title="training",
    check_fields=check_fields,
    disagreements=contradictions,
    compared="cursor, steps of each optimizer, position of each schedule, learning rate",
    trial=FitCheck(
        before=fresh_of,
        after=compare_with_fresh,
        compared="compared: cursor, history, shapes, random streams, of which parameters moments "
        "are kept, rates with schedules and config; one step was trained",
    ),
)
