"""Accounts are created, given roles, disabled and given passwords here; superusers only."""

import secrets
from collections.abc import Collection

from django.contrib.auth import password_validation
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from trainops.errors import DomainError
from trainops.http import second_factor
from trainops.http.access_log import note
from trainops.http.models import ServiceAccount
from trainops.http.roles import Role

PASSWORD_BYTES = 12


class UserNotFound(DomainError):
    """There is no user of this name."""

    def __init__(self, username: str) -> None:
        message = f"There is no user {username[:150]!r}."
        super().__init__("USER_NOT_FOUND", message, {"username": username[:150]}, status=404)


class OwnAccount(DomainError):
    """A change of the caller's own account, which could lock the caller out."""

    def __init__(self, change: str) -> None:
        super().__init__("OWN_ACCOUNT", f"This is your own account: {change}", status=409)


def get(username: str) -> User:
    """Return a user. Raises UserNotFound."""
    user = None if "\x00" in username else User.objects.filter(username=username).first()
    if user is None:
        raise UserNotFound(username)
    return user


def former_username(user: User, update_fields: Collection[str] | None) -> str:
    """Return the username that `user`, which is about to be saved, has now; "" if it stays."""
    if update_fields is not None and "username" not in update_fields:
        return ""
    former = User.objects.filter(pk=user.pk).exclude(username=user.username)
    return former.values_list("username", flat=True).first() or ""


class NoServiceAccount(DomainError):
    """Others create tokens of service accounts only: a token acts for its owner."""

    def __init__(self, username: str) -> None:
        message = f"{username} is no service account: its owner signs in to create tokens."
        super().__init__("NO_SERVICE_ACCOUNT", message, {"username": username}, status=409)


class HasNoPassword(DomainError):
    """A service account is used with tokens only."""

    def __init__(self, username: str) -> None:
        message = f"{username} is a service account: it has tokens and no password."
        super().__init__("IS_SERVICE_ACCOUNT", message, {"username": username}, status=409)


def is_service(user: User) -> bool:
    """Whether it is a service account: for programs, with tokens that superusers create."""
    return hasattr(user, "service_account")


def create(
    username: str, *, email: str = "", role: Role | None = None, is_service: bool = False
) -> tuple[User, str | None]:
    """Return a new user and a random password, which is stored as a hash only.

    A service account has no password. Raises DomainError: the name is taken.
    """
    password = None if is_service else new_password()
    try:
        with transaction.atomic():
            user = User.objects.create_user(username, email, password)
            note("service account created" if is_service else "user created", user=username)
            if is_service:
                ServiceAccount.objects.create(user=user)
            if role is not None:
                user.groups.add(_group(role))
    except IntegrityError:
        raise DomainError(
            "USER_EXISTS", f"There already is a user {username!r}.", {"username": username}, 409
        ) from None
    return user, password


def set_role(user: User, role: Role | None, *, by: User) -> None:
    """Give a user this role and no other; None: no role. Raises DomainError."""
    if user == by:
        raise OwnAccount("ask another superuser for another role.")
    if user.is_superuser:
        raise DomainError(
            "IS_SUPERUSER",
            f"{user.username} is a superuser and therefore an admin; the admin site changes that.",
            status=409,
        )
    give_role(user, role)


def give_role(user: User, role: Role | None) -> None:
    """Give a user this role and no other, as an admin or a provider of identities decides."""
    with transaction.atomic():
        others = user.groups.filter(name__in=list(Role)).exclude(name=role)
        user.groups.remove(*others)
        if role is not None:
            user.groups.add(_group(role))


def set_active(user: User, is_active: bool, *, by: User) -> None:
    """Enable or disable an account: a disabled one has no access by password, session or token.

    Raises DomainError: it is the caller's own.
    """
    if user == by:
        raise OwnAccount("another superuser can disable it.")
    changed = User.objects.filter(pk=user.pk).exclude(is_active=is_active)
    if changed.update(is_active=is_active):
        note("user enabled" if is_active else "user disabled", user=user.username)
    user.is_active = is_active


def reset_password(user: User, password: str = "", *, by: User | None) -> str:
    """Set a password, or a random one, and return it; revokes tokens and ends sessions.

    `by`: the caller; None on the command line of the server. Raises DomainError (the caller's own,
    a service account) and Django's ValidationError (too short or too common).
    """
    if user == by:
        raise OwnAccount("change the password on the page Account, which asks for the current one.")
    if is_service(user):
        raise HasNoPassword(user.username)
    if password:
        password_validation.validate_password(password, user)
    password = password or new_password()
    user.set_password(password)
    user.save(update_fields=["password"])  # tells the validators, which revoke the tokens
    return password


def remove_second_factor(user: User, *, by: User | None) -> None:
    """Remove the second factor of a user who has lost it.

    `by`: the caller; None on the command line of the server. Raises DomainError: it is the caller's
    own, or there is none.
    """
    if user == by:
        raise OwnAccount("remove it on the page Account, which asks for the password and a code.")
    second_factor.remove(user)


def new_password() -> str:
    """Return a random password of 96 bits."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _group(role: Role) -> Group:
    group, _ = Group.objects.get_or_create(name=role.value)
    return group
