"""What another number of ranks, another sharding and other nodes change; without torch."""


def change(
    before: int, now: int, *, was_divided: bool = False, is_divided: bool = False
) -> dict[str, str]:
    """Return what is said of another number of ranks or another sharding, by part."""
    changes = {}
    if before != now:
        effects = "sums are formed in another order, batches are distributed in another way"
        what = f"was {before}, is {now}: {effects}; further ranks draw new numbers"
        changes["processes"] = f"{what}; parameters are divided anew" if was_divided else what
    if was_divided != is_divided:
        names = {False: "none", True: "full"}
        what = f"was {names[was_divided]}, is {names[is_divided]}"
        changes["sharding"] = f"{what}: gradients are summed in another order"
    return changes


def change_of_nodes(before: int, now: int) -> dict[str, str]:
    """Return what is said of another number of nodes with GPUs."""
    if before == now:
        return {}
    what = f"was {before}, is {now}: NCCL may form sums in an order that depends on the nodes"
    return {"nodes": what}
