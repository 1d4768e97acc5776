"""The report of the preparation process, which `up` prints. Uses the standard library only."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Prepared:
    """What was done, for the box that `up` prints. The password is known only now."""

    migrated: int = 0
    admin: str = ""
    password: str = ""
    demo: str = ""
    warnings: list[str] = field(default_factory=list)
