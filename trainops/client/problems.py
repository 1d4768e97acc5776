"""How a command fails: a sentence, what to do about it, and an exit code to rely on."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes. 130, as everywhere, after Ctrl-C."""

    OK = 0
    FAILED = 1  # the operation did not complete, or the server did not do what was asked
    USAGE = 2  # the command line, the file or the config is wrong
    NOT_FOUND = 3
    CONFLICT = 4  # what the operation's state does not allow
    INTERRUPTED = 130


class Problem(Exception):
    """Ends the command. `hints` are lines that help on, commands among them ready to paste."""

    def __init__(
        self, message: str, exit_code: ExitCode = ExitCode.FAILED, *, hints: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.hints = hints


class Refused(Problem):
    """The server's answer was no; `fields` maps a field's path to what is wrong with it."""

    def __init__(
        self,
        code: str,
        message: str,
        exit_code: ExitCode,
        *,
        fields: dict[str, str] | None = None,
        hints: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, exit_code, hints=hints)
        self.code = code
        self.fields = fields or {}


class Unreachable(Problem):
    """No response. `was_sent`: the server may have done what was asked."""

    def __init__(
        self, message: str, *, hints: tuple[str, ...] = (), was_sent: bool = False
    ) -> None:
        super().__init__(message, hints=hints)
        self.was_sent = was_sent
