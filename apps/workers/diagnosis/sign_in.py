"""Whether people can sign in as the settings say."""

from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.models import User

from apps.workers.diagnosis.findings import Diagnosis
from trainops.http import second_factor
from trainops.http.models import SecondFactor
from trainops.http.oidc import id_tokens, requests
from trainops.http.oidc import provider as oidc_provider
from trainops.http.oidc.errors import SignInRefused
from trainops.http.oidc.provider import Published
from trainops.oidc_settings import ISSUER, PREFIX, Oidc
from trainops.sign_in_settings import SECOND_FACTOR, Requirement


def second_factors() -> Iterator[Diagnosis]:
    found = [*_keys(), *_superusers()]
    num = SecondFactor.objects.count()
    yield from found or [Diagnosis.ok(f"{num} accounts have a second factor")]


def _keys() -> Iterator[Diagnosis]:
    num_older, num_lost = second_factor.num_not_current()
    if num_lost:
        yield Diagnosis.problem(
            f"no present secret key has encrypted {num_lost} second factors: their codes are "
            "refused",
            "Add the former key as a further line of the file secret_key and restart, or run: "
            "trainops users remove-second-factor USERNAME",
        )
    if num_older:
        yield Diagnosis.warning(
            f"an older secret key has encrypted {num_older} second factors",
            "Restart trainops up, or run python -m trainops.launch.prepare, before the older key "
            "is removed.",
        )


def _superusers() -> Iterator[Diagnosis]:
    """A stolen password of such an account is enough to set up a factor of the thief."""
    if settings.SECOND_FACTOR == Requirement.OPTIONAL:
        return
    people = User.objects.filter(is_superuser=True, is_active=True, second_factor=None)
    names = [each.username for each in people.order_by("username") if each.has_usable_password()]
    if names:
        yield Diagnosis.warning(
            f"superusers without a second factor, which {SECOND_FACTOR} requires: "
            f"{', '.join(names[:5])}{', …' if names[5:] else ''}",
            "Until they sign in on the page, knowing the password is enough to set it up.",
        )


def provider() -> Iterator[Diagnosis]:
    """Whether the provider of sign-ins answers, and its settings fit together."""
    oidc: Oidc | None = settings.OIDC
    if oidc is None:
        yield Diagnosis.ok("no provider is configured: people sign in with passwords")
        return
    try:
        found = oidc_provider.read(oidc)
        id_tokens.usable_keys(requests.ask(oidc, "GET", found.address("jwks_uri")).body)
    except (SignInRefused, ValueError) as problem:
        detail = getattr(problem, "detail", "") or str(problem)
        yield Diagnosis.problem(
            f"the provider {oidc.issuer} cannot be used: {detail}",
            f"Correct {ISSUER}, or the network between this machine and the provider.",
        )
        return
    warnings = [*_of_metadata(oidc, found), *_of_accounts(oidc), *_of_addresses(oidc)]
    yield from warnings or [Diagnosis.ok(f"{oidc.issuer} answers")]


def _of_metadata(oidc: Oidc, found: Published) -> Iterator[Diagnosis]:
    methods = found.names("code_challenge_methods_supported")
    if methods is not None and "S256" not in methods:
        yield Diagnosis.warning(
            f"the provider supports PKCE by {', '.join(methods) or 'no method'}, not by S256",
            "Enable S256 for this client at the provider.",
        )
    supported = found.names("scopes_supported")
    if supported is not None and (missing := set(oidc.scopes.split()) - set(supported)):
        yield Diagnosis.warning(
            f"the provider does not name the scopes {', '.join(sorted(missing))}",
            f"Correct {PREFIX}SCOPES; the provider names {', '.join(supported)[:200]}.",
        )
    claims = found.names("claims_supported")
    if (oidc.roles or oidc.required_group) and claims and oidc.groups_claim not in claims:
        yield Diagnosis.warning(
            f"the provider does not name the claim {oidc.groups_claim}, which has the groups",
            f"Add the claim at the provider, or correct {PREFIX}GROUPS_CLAIM.",
        )


def _of_accounts(oidc: Oidc) -> Iterator[Diagnosis]:
    if oidc.creates_accounts and not oidc.roles:
        yield Diagnosis.warning(
            "new accounts of the provider have no role until an admin gives one",
            f"Set {PREFIX}ROLES, such as *=viewer,ml-team=operator, or {PREFIX}CREATE_ACCOUNTS=0.",
        )


def _of_addresses(oidc: Oidc) -> Iterator[Diagnosis]:
    if oidc.issuer.startswith("https:") and not settings.BEHIND_HTTPS_PROXY:
        yield Diagnosis.warning(
            "sign-ins of the provider lead back to plain HTTP",
            "Use a proxy with HTTPS and set TRAINOPS_BEHIND_HTTPS_PROXY=1.",
        )
