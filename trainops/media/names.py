"""Names of measured points: those with these beginnings are no metrics of their operation.

They are points, with charts in groups of their own, but no operation is listed, compared or judged
by them. Recipes log none that begins with SYSTEM.
"""

SYSTEM = "system/"  # speed, CPU, memory, GPU: measured anew by each attempt
CLIENTS = "clients/"  # of one client of several that train together: "clients/3/train_loss"
NO_METRICS = (SYSTEM, CLIENTS)


def is_metric(name: str) -> bool:
    return not name.startswith(NO_METRICS)
