"""Models that torch compiles are computed as they are compiled, or refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainops.runtime.errors import InputError


@contextmanager
def always_compiled(field: str, given: str) -> Iterator[None]:
    """Raise InputError for a field where a model has more shapes and modes than torch compiles.

    torch computes further ones uncompiled, and after a resume, which compiles in another order,
    those would be others.
    """
    config = torch.compiler.config
    before, config.fail_on_recompile_limit_hit = config.fail_on_recompile_limit_hit, True
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "FailOnRecompileLimitHit":  # torch has no public name
            raise
        limit = config.recompile_limit
        problem = f"{given}, and torch compiles a model for at most {limit} shapes and modes"
        allowed = "false, or batches of fewer shapes (drop_last, padding)"
        raise InputError({field: f"{problem}; allowed: {allowed}"}) from error
    finally:
        config.fail_on_recompile_limit_hit = before
