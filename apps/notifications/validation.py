"""What a rule may say: its target, its filters and its alert, by the role of its user."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from apps.notifications.models import Rule
from apps.operations.attention import CONCERNS
from apps.operations.lifecycle import Reason
from trainops.http.roles import Role, has_role
from trainops.kind import KINDS
from trainops.text import name_problem

MAX_POINTS = 1000
EVENTS = ("on_failed", "on_cancelled", "on_completed", "on_attention")


def only_user(rule: Rule) -> User | None:
    """Return the user whose operations the rule covers; None if its user, an admin, sees all.

    Rules without a user were created by an admin.
    """
    is_all = rule.user is None or has_role(rule.user, Role.ADMIN)
    return None if is_all else rule.user


def validate(rule: Rule) -> None:
    """Raise ValidationError with each field that is not allowed."""
    problems = dict(_problems(rule))
    if problems:
        raise ValidationError(problems)


def _problems(rule: Rule) -> Iterator[tuple[str, str]]:
    yield from _target(rule)
    yield from _filters(rule)
    yield from _alert(rule)
    if problem := name_problem(rule.name):
        yield "name", problem
    if rule.digest_hour is not None and rule.digest_hour > 23:
        yield "digest_hour", f"got {rule.digest_hour}; allowed: 0 to 23, or empty"
    if not rule.condition and not any(getattr(rule, name) for name in EVENTS):
        yield "on_failed", "Nothing would be sent; select an event or an alert."


def _target(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.channel == Rule.Channel.WEBHOOK:
        yield from _url(rule.target)
    elif not settings.EMAIL_HOST:
        yield "channel", "No mail server is configured; an admin sets TRAINOPS_MAIL_URL."
    else:
        yield from _mail_address(rule)


def _url(url: str) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(url)
        is_address = bool(parts.hostname) and parts.port != 0 and url.isascii() and " " not in url
    except ValueError:
        parts, is_address = urlsplit(""), False
    if not is_address or parts.scheme not in ("http", "https"):
        yield "target", f"got {url!r}; allowed: http://HOST/… or https://HOST/…"
    elif parts.username or parts.password:
        yield "target", "Credentials in the address are not supported; use the signature."


def _mail_address(rule: Rule) -> Iterator[tuple[str, str]]:
    try:
        validate_email(rule.target)
    except ValidationError:
        yield "target", f"got {rule.target!r}; allowed: a mail address"
        return
    user = only_user(rule)
    if user and rule.target != user.email:
        own = user.email or "none; an admin enters the address of your account"
        yield "target", f"got {rule.target!r}; allowed: {own}"


def _filters(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.kind and rule.kind not in KINDS:
        yield "kind", f"got {rule.kind!r}; allowed: {', '.join(KINDS)}, or empty"
    reasons = [*(each for each in Reason.values if each), *CONCERNS]
    if rule.reason and rule.reason not in reasons:
        yield "reason", f"got {rule.reason!r}; allowed: {', '.join(reasons)}, or empty"
    user = only_user(rule)
    if user and rule.owner != user.get_username():
        got = rule.owner or "operations of anyone"
        yield "owner", f"got {got!r}; allowed: {user.get_username()!r}"


def _alert(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.condition == Rule.Condition.PLATEAU and not rule.metric:
        yield "metric", "got ''; allowed: the name of a metric, such as val_loss"
    if not 1 <= rule.points <= MAX_POINTS:
        yield "points", f"got {rule.points}; allowed: 1 to {MAX_POINTS}"
