"""Whether a layer does what its type says, and nothing more: then its derivative is known."""

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_unmodified(layer: nn.Module) -> bool:
    """Whether nothing listens to the layer, and it leaves what it is given as it is."""
    return not getattr(layer, "inplace", False) and not any(getattr(layer, name) for name in HOOKS)
