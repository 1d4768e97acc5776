"""Progress as a percentage and as the time that is left."""


def percent(step: int, total_steps: int | None) -> float:
    """Return from 0 to 100 with three decimals; 0 where the number of steps is not known."""
    return round(min(100.0, 100.0 * step / total_steps), 3) if total_steps else 0.0


def eta_seconds(step: int, total_steps: int | None, steps_per_second: float | None) -> float | None:
    """Return the time left at this rate; None where it is not known."""
    if not steps_per_second or total_steps is None:
        return None
    return max(0, total_steps - step) / steps_per_second
