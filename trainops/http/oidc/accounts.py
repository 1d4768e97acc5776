"""Accounts of people whom the provider identifies: by issuer and subject, never by mail address."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from trainops.clock import DatabaseNow
from trainops.http import users
from trainops.http.access_log import note
from trainops.http.models import Identity
from trainops.http.oidc.errors import SignInRefused
from trainops.http.roles import Role, role_among
from trainops.oidc_settings import EVERYONE, Oidc

MAX_NAME = 150


def sign_in(oidc: Oidc, claims: Mapping[str, Any]) -> User:
    """Return the account of a person, with the roles of the claims; it may be a new one.

    Raises SignInRefused.
    """
    problem = _problem(oidc, claims)
    identity = _identity(oidc, claims)
    if identity is None:
        if problem is not None:
            raise SignInRefused(problem)
        identity = _create(oidc, claims)
    elif oidc.roles or problem:
        _follow_roles(identity.user, None if problem else role_of(oidc, claims))
    if problem is not None:
        raise SignInRefused(problem)
    if not identity.user.is_active:
        raise SignInRefused(f"The account {identity.user.username} is disabled.")
    Identity.objects.filter(pk=identity.pk).update(last_used_at=DatabaseNow())
    return identity.user


def link(oidc: Oidc, claims: Mapping[str, Any], user: User) -> None:
    """Have a person sign in to a present account by the provider, too. Raises SignInRefused."""
    if problem := _problem(oidc, claims):
        raise SignInRefused(problem)
    try:
        with transaction.atomic():
            Identity.objects.create(user=user, issuer=oidc.issuer, subject=claims["sub"])
            note("identity linked", user=user.username, provider=oidc.issuer)
            if oidc.roles:
                _follow_roles(user, role_of(oidc, claims))
    except IntegrityError:
        owner = _identity(oidc, claims)
        whose = "this account" if owner is None or owner.user == user else "another account"
        raise SignInRefused(
            f"Not connected: {whose} already has an identity of {oidc.name}.", status=409
        ) from None


def unlink(identities: QuerySet[Identity]) -> int:
    """End the connections of a query; return how many there were."""
    with transaction.atomic():
        found = list(identities.select_related("user"))
        num, _ = identities.filter(pk__in=[each.pk for each in found]).delete()
        for each in found:
            note("identity unlinked", user=each.user.username, provider=each.issuer)
    return num


def groups_of(oidc: Oidc, claims: Mapping[str, Any]) -> set[str]:
    """Return the groups that the claims name: a list, or one name."""
    found = claims.get(oidc.groups_claim)
    names = found if isinstance(found, list) else [found]
    return {each for each in names if isinstance(each, str)}


def role_of(oidc: Oidc, claims: Mapping[str, Any]) -> Role | None:
    """Return the highest role that the groups of a person give."""
    groups = {*groups_of(oidc, claims), EVERYONE}
    return role_among(role for group, role in oidc.roles if group in groups)


def _problem(oidc: Oidc, claims: Mapping[str, Any]) -> str | None:
    """Return why a person may not sign in; None: that is allowed."""
    if oidc.required_group and oidc.required_group not in groups_of(oidc, claims):
        return f"Your account at {oidc.name} is not in the group {oidc.required_group}."
    if oidc.email_domains:
        address = str(claims.get("email") or "").lower()
        if claims.get("email_verified") is not True:
            return f"{oidc.name} has not verified the mail address of your account."
        if address.rpartition("@")[2] not in oidc.email_domains:
            allowed = ", ".join(oidc.email_domains)
            return f"Your mail address {address[:100]!r} is not of an allowed domain: {allowed}."
    if oidc.roles and role_of(oidc, claims) is None:
        return f"No group of your account at {oidc.name} has a role here. Ask an admin for one."
    return None


def _identity(oidc: Oidc, claims: Mapping[str, Any]) -> Identity | None:
    found = Identity.objects.filter(issuer=oidc.issuer, subject=claims["sub"])
    return found.select_related("user").first()


def _create(oidc: Oidc, claims: Mapping[str, Any]) -> Identity:
    if not oidc.creates_accounts:
        raise SignInRefused(
            f"Your account at {oidc.name} is not connected with an account here. Sign in with a "
            "password and connect it on the page Account, or ask an admin."
        )
    username = _username(oidc, claims)
    try:
        with transaction.atomic():
            if User.objects.filter(username__iexact=username).exists():
                raise IntegrityError("the name is taken, in whatever case")
            user = User.objects.create_user(username, _mail_address(claims))
            identity = Identity.objects.create(user=user, issuer=oidc.issuer, subject=claims["sub"])
            note("user created", user=username, provider=oidc.issuer)
            if oidc.roles:
                _follow_roles(user, role_of(oidc, claims))
    except IntegrityError:
        if (found := _identity(oidc, claims)) is not None:  # made by a parallel sign-in
            return found
        raise _taken(oidc, username) from None
    return identity


def _taken(oidc: Oidc, username: str) -> SignInRefused:
    return SignInRefused(
        f"There already is an account {username}, which is not connected with {oidc.name}. If it "
        "is yours, sign in with its password and connect it on the page Account.",
        status=409,
    )


def _username(oidc: Oidc, claims: Mapping[str, Any]) -> str:
    name = claims.get(oidc.username_claim)
    try:
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise ValidationError("no name")
        UnicodeUsernameValidator()(name)
    except ValidationError:
        allowed = f"up to {MAX_NAME} letters, digits and @ . + - _"
        raise SignInRefused(
            f"{oidc.name} gives no usable name for a new account: got {str(name)[:60]!r} as "
            f"{oidc.username_claim}; allowed: {allowed}."
        ) from None
    return name


def _mail_address(claims: Mapping[str, Any]) -> str:
    """Return the address for notifications; empty if the provider has not verified it."""
    address = claims.get("email")
    try:
        validate_email(address)
    except ValidationError:
        return ""
    return str(address) if claims.get("email_verified") is True else ""


def _follow_roles(user: User, role: Role | None) -> None:
    """Give the role that the groups give; superusers stay what they are."""
    if not user.is_superuser:
        users.give_role(user, role)
