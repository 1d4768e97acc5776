"""Why a sign-in by a provider ends, as its person reads it."""

import logging

from trainops.errors import DomainError

logger = logging.getLogger("trainops.access")


class SignInRefused(DomainError):
    """The sign-in is refused. `message` is shown; `detail` is logged only."""

    def __init__(self, message: str, *, detail: str = "", status: int = 403) -> None:
        super().__init__("SIGN_IN_REFUSED", message, status=status)
        self.detail = detail


class ProviderProblem(SignInRefused):
    """The provider does not answer, or answers what cannot be accepted."""

    def __init__(self, message: str, *, detail: str = "", status: int = 502) -> None:
        super().__init__(message, detail=detail, status=status)
