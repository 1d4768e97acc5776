"""Who may call what. A view says the role it needs; the default goes by the method."""

from typing import TYPE_CHECKING, ClassVar

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from trainops.http.models import Token, TokenScope
from trainops.http.roles import Role, has_role, role_of

if (
    TYPE_CHECKING
):  # importing it here would be a circle: it reads the settings that name this module
    from rest_framework.views import APIView


def worker_token(request: Request) -> Token | None:
    """Return the token of the request where its scope is `worker`."""
    token = request.auth
    return token if isinstance(token, Token) and token.scope == TokenScope.WORKER else None


def is_worker_token(request: Request) -> bool:
    return worker_token(request) is not None


class RolePermission(BasePermission):
    """Signed in, with at least `reading` for safe methods and `writing` for all others."""

    reading: ClassVar[Role] = Role.VIEWER
    writing: ClassVar[Role] = Role.OPERATOR
    message: str = ""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not request.user.is_authenticated:
            return False  # the framework answers 401
        needed = self.reading if request.method in SAFE_METHODS else self.writing
        if is_worker_token(request):
            self.message = "This token is for worker endpoints only."
            return False
        self.message = _explain(role_of(request.user), needed)
        return has_role(request.user, needed)


class IsViewer(RolePermission):
    writing = Role.VIEWER


class IsOperator(RolePermission):
    reading = Role.OPERATOR


class IsAdmin(RolePermission):
    reading = Role.ADMIN
    writing = Role.ADMIN


class IsSuperuser(IsAdmin):
    """Superusers, such as the first account: they manage accounts."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        is_admin = super().has_permission(request, view)
        if request.user.is_authenticated and not is_worker_token(request):
            self.message = "This requires a superuser, such as the first account."
        return is_admin and bool(getattr(request.user, "is_superuser", False))


class IsWorker(BasePermission):
    """A token of the scope `worker`, which is an admin's, or an admin who stands in for one."""

    message = "Worker endpoints require a token of the scope 'worker' (or an admin)."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        # Only admins make worker tokens: such a token counts no longer than its owner is one.
        return has_role(request.user, Role.ADMIN)


class WorkersWriteViewersRead(BasePermission):
    """For the worker registry: everyone with a role reads it, workers write it."""

    message = IsWorker.message

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if request.method in SAFE_METHODS and has_role(request.user, Role.VIEWER):
            return True
        return IsWorker().has_permission(request, view)


def _explain(role: Role | None, needed: Role) -> str:
    if role is None:
        return (
            "Your account has no role yet. "
            f"Ask an admin to add you to one of the groups: {', '.join(Role)}."
        )
    return f"This requires the role {needed.value}; your account has the role {role.value}."
