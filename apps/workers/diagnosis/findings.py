"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    level: Level
    message: str
    remedy: str = ""  # what to do; empty only if all is well

    @classmethod
    def ok(cls, message: str) -> Self:
        return cls(Level.OK, message)

    @classmethod
    def warning(cls, message: str, remedy: str) -> Self:
        return cls(Level.WARNING, message, remedy)

    @classmethod
    def problem(cls, message: str, remedy: str) -> Self:
        return cls(Level.PROBLEM, message, remedy)
