"""What can go wrong in an attempt, by whose fault it is."""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path


class FieldErrors(ValueError):
    """`errors` maps a field's dotted path to what was given there and what is allowed.

    `num_more` is how many more fields are wrong, where those would have been too many to tell.
    """

    def __init__(self, errors: Mapping[str, str], num_more: int = 0) -> None:
        lines = [f"{field}: {problem}" for field, problem in errors.items()]
        super().__init__("; ".join([*lines, f"and {num_more} more"] if num_more else lines))
        self.errors = dict(errors)
        self.num_more = num_more


class ConfigError(FieldErrors):
    """The configuration is wrong in itself; found before anything is created."""


class InputError(FieldErrors):
    """The configuration does not fit the data it names; found when the data is read."""


class NonFiniteLoss(ArithmeticError):
    """The loss or its gradient became NaN or infinite; the weights before it are still good.

    `where` names the examples of the step, or its batch. It happened in one of the `num_steps`
    steps that end with `step`.
    """

    def __init__(
        self, step: int, value: float, what: str = "loss", where: str = "", num_steps: int = 1
    ) -> None:
        place = f" ({where})" if where else ""
        when = f"step {step}" if num_steps == 1 else f"one of the {num_steps} steps up to {step}"
        super().__init__(f"the {what} became {value} in {when}{place}")
        self.step, self.num_steps = step, num_steps
        self.value = value
        self.what = what


class ExplodingNorm(ArithmeticError):
    """The gradient norm exceeds limits.exploding_norm; the weights before it are still good.

    `where` names the examples of the step, or its batch.
    """

    def __init__(self, step: int, norm: float, limit: float, where: str = "") -> None:
        place = f" ({where})" if where else ""
        what = f"the gradient norm is {norm:g} in step {step}{place}"
        super().__init__(f"{what}; allowed by limits.exploding_norm: up to {limit:g}")
        self.step = step
        self.norm = norm


class IncompatibleState(ValueError):
    """The saved state is whole, but belongs to a job of another shape. Nothing was changed."""


class NotExact(ValueError):
    """The resume would not be exact, and the config requires that it is. Nothing was changed."""


class LedgerMismatch(ValueError):
    """The ledger contradicts a checkpoint, which must not be resumed."""


class UnfreezableState(TypeError):
    """A job's state holds something that is neither a tensor nor a plain value."""


class Machinery(Exception):
    """Not the job's fault: it ends the attempt, never the operation."""


class LeaseLost(Machinery):
    """This attempt no longer owns the operation; whatever it says from now on is refused."""


class SaveFailed(Machinery):
    """A checkpoint could not be written or stored. The job can go on without it."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"the checkpoint of step {step} could not be saved: {reason}")
        self.step = step
        self.reason = reason


class StorageAway(OSError):
    """The storage is not there, or is another one; that says nothing about the bytes it holds."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.ENODEV, problem)

    def __str__(self) -> str:
        return str(self.strerror)


class CheckpointCorrupted(Machinery):
    """The bytes on disk are not the bytes that the manifest promised."""

    def __init__(
        self,
        path: Path,
        *,
        missing: Sequence[str] = (),
        altered: Sequence[str] = (),
        reason: str = "",
    ) -> None:
        self.path = path
        self.missing = list(missing)
        self.altered = list(altered)
        self.reason = reason
        super().__init__(path, missing, altered, reason)

    def __str__(self) -> str:
        what = "incomplete" if self.is_incomplete else "corrupted"
        return f"checkpoint {self.path.name} is {what} ({self.findings})"

    @property
    def findings(self) -> str:
        """What is missing and altered, in one line."""
        findings = [
            f"missing: {', '.join(self.missing)}" if self.missing else "",
            f"altered: {', '.join(self.altered)}" if self.altered else "",
            self.reason,
        ]
        return "; ".join(filter(None, findings))

    @property
    def is_incomplete(self) -> bool:
        """Whether files are missing, and what is there is what was saved."""
        return bool(self.missing) and not self.altered


class AllCheckpointsCorrupted(Machinery):
    """No checkpoint of the operation can be trusted; starting over would lose work unasked."""

    def __init__(self, errors: Sequence[CheckpointCorrupted]) -> None:
        super().__init__("no healthy checkpoint is left: " + "; ".join(map(str, errors)))
        self.errors = list(errors)


class RankFailed(Exception):
    """The job's code raised an exception in a rank other than 0; `code` is its reason code."""

    def __init__(self, rank: int, code: str, message: str, traceback: str = "") -> None:
        super().__init__(f"rank {rank}: {message}")
        self.rank, self.code = rank, code
        if traceback:
            self.add_note(f"Traceback of rank {rank}:\n{traceback}")


class RankLost(Machinery):
    """The process of a rank has ended or does not respond; `code` is the reason code."""

    def __init__(self, rank: int, code: str, what: str) -> None:
        super().__init__(f"rank {rank} {what}")
        self.rank, self.code = rank, code


class NodeLost(RankLost):
    """The connection to another node of the attempt has ended, or is silent."""

    def __init__(self, host: str, ranks: Sequence[int], what: str) -> None:
        Machinery.__init__(self, f"the node {host} ({_numbers(ranks)}) {what}")
        self.rank, self.code = ranks[0], "WORKER_LOST"


class LoaderLost(Machinery):
    """A worker process of a loader has ended; `code` is the reason code."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code


def _numbers(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"


class RanksDiverged(ValueError):
    """Something that must be equal in all ranks is not."""
