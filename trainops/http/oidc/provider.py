"""The provider: what it publishes about itself, and the exchange of a code for claims."""

import base64
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from trainops.http.oidc import id_tokens
from trainops.http.oidc.errors import ProviderProblem, SignInRefused
from trainops.http.oidc.requests import NOT_ACCEPTED, ask, require_secure
from trainops.oidc_settings import EVERYONE, Oidc

WELL_KNOWN = "/.well-known/openid-configuration"
KEPT_SECONDS = 300.0  # for which what the provider published is believed
REQUIRED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
OPTIONAL = ("userinfo_endpoint", "end_session_endpoint")
MAIL = {"email", "email_verified"}  # claims that belong together
FAILED_SECONDS = 5.0  # for which a provider that did not answer is not asked again
_known: dict[str, tuple[float, "Published | ProviderProblem"]] = {}  # each until a time
_known_keys: dict[str, tuple[float, "Mapping[str, Any] | ProviderProblem"]] = {}  # and when read
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Published:
    """The metadata of a provider (OpenID Connect Discovery)."""

    fields: Mapping[str, Any]

    def address(self, name: str) -> str:
        """Return an address; empty: the provider has none of this name."""
        return str(self.fields.get(name) or "")

    def names(self, name: str) -> list[str] | None:
        """Return a list of names; None: the provider publishes none."""
        found = self.fields.get(name)
        return [str(each) for each in found] if isinstance(found, list) else None


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the provider gave for a code."""

    id_token: str
    access_token: str


def published(oidc: Oidc) -> Published:
    """Return the metadata of the provider, at most some minutes old. Raises ProviderProblem."""
    with _lock:
        ends_at, kept = _known.get(oidc.issuer, (0.0, None))
    if kept is None or time.monotonic() >= ends_at:
        kept = _read_anew(oidc)
    if isinstance(kept, ProviderProblem):
        raise ProviderProblem(kept.message, detail=kept.detail)
    return kept


def _read_anew(oidc: Oidc) -> Published | ProviderProblem:
    found: Published | ProviderProblem
    try:
        found, seconds = read(oidc), KEPT_SECONDS
    except ProviderProblem as problem:
        if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:  # of this process
            raise
        found, seconds = problem, FAILED_SECONDS
    with _lock:
        _known[oidc.issuer] = (time.monotonic() + seconds, found)
    return found


def forget() -> None:
    """Have the metadata and the keys read anew."""
    with _lock:
        _known.clear()
        _known_keys.clear()


def read(oidc: Oidc) -> Published:
    """Return the metadata that the provider publishes now. Raises ProviderProblem."""
    url = oidc.issuer.rstrip("/") + WELL_KNOWN
    answer = ask(oidc, "GET", url)
    if answer.status != HTTPStatus.OK:
        raise ProviderProblem(NOT_ACCEPTED, detail=f"{url}: HTTP {answer.status}")
    issuer = answer.body.get("issuer")
    if issuer != oidc.issuer:
        detail = f"{url}: got the issuer {issuer!r}; allowed: {oidc.issuer!r}"
        raise ProviderProblem(NOT_ACCEPTED, detail=detail)
    for name in (*REQUIRED, *(each for each in OPTIONAL if answer.body.get(each))):
        require_secure(oidc, answer.body.get(name))
    return Published(answer.body)


def authorization_address(
    oidc: Oidc, *, callback: str, state: str, nonce: str, verifier: str
) -> str:
    """Return the address at the provider that a browser is sent to. Raises ProviderProblem."""
    challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": oidc.client_id,
        "redirect_uri": callback,
        "scope": oidc.scopes,
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    return with_query(published(oidc).address("authorization_endpoint"), query)


def with_query(address: str, query: Mapping[str, str]) -> str:
    separator = "&" if urlsplit(address).query else "?"
    return f"{address}{separator}{urlencode(query)}"


def exchange(oidc: Oidc, code: str, *, callback: str, verifier: str) -> Tokens:
    """Exchange the code for tokens. Raises SignInRefused (the code is none), ProviderProblem."""
    provider = published(oidc)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": callback,
        "code_verifier": verifier,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    methods = provider.names("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    if oidc.client_secret and "client_secret_basic" in methods:
        pair = f"{quote(oidc.client_id, safe='')}:{quote(oidc.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = oidc.client_id
        form |= {"client_secret": oidc.client_secret} if oidc.client_secret else {}
    url = provider.address("token_endpoint")
    answer = ask(oidc, "POST", url, headers=headers, body=urlencode(form).encode())
    if answer.status != HTTPStatus.OK:
        error = f"{answer.body.get('error')}: {answer.body.get('error_description')}"
        raise SignInRefused(
            "The sign-in provider did not confirm this sign-in. Try again.",
            detail=f"{url}: HTTP {answer.status} {error[:300]}",
        )
    tokens = [answer.body.get(name) for name in ("id_token", "access_token")]
    if not all(isinstance(each, str) for each in tokens):
        raise ProviderProblem(NOT_ACCEPTED, detail=f"{url}: the answer has no ID token")
    return Tokens(*map(str, tokens))


def claims(oidc: Oidc, tokens: Tokens, *, nonce: str) -> dict[str, Any]:
    """Return the verified claims of a person. Raises SignInRefused.

    What a setting needs and an ID token does not have is taken from the userinfo endpoint, for the
    same subject.
    """
    provider = published(oidc)
    found = id_tokens.verified(oidc, tokens.id_token, _read_keys(oidc), nonce=nonce)
    url = provider.address("userinfo_endpoint")
    if not url or _needed(oidc) <= found.keys():
        return found
    bearer = {"Authorization": f"Bearer {tokens.access_token}"}
    answer = ask(oidc, "GET", url, headers=bearer)
    if answer.status != HTTPStatus.OK or answer.body.get("sub") != found["sub"]:
        detail = f"{url}: HTTP {answer.status}, the subject {answer.body.get('sub')!r}"
        raise ProviderProblem(NOT_ACCEPTED, detail=detail)
    return _merged(found, answer.body)


def logout_claims(oidc: Oidc, token: str) -> dict[str, Any]:
    """Return the verified claims of a logout token. Raises ProviderProblem."""
    id_tokens.require_addressed(oidc, token)
    try:
        return id_tokens.verified_logout(oidc, token, _keys(oidc, KEPT_SECONDS))
    except ProviderProblem:  # the keys may be new
        return id_tokens.verified_logout(oidc, token, _keys(oidc, FAILED_SECONDS))


def _keys(oidc: Oidc, seconds: float) -> Mapping[str, Any]:
    """Return the keys of the provider, read at most this long ago. Raises ProviderProblem."""
    with _lock:
        read_at, kept = _known_keys.get(oidc.issuer, (-math.inf, {}))
    allowed = FAILED_SECONDS if isinstance(kept, ProviderProblem) else seconds
    if time.monotonic() - read_at > allowed:
        kept = _read_keys_anew(oidc)
    if isinstance(kept, ProviderProblem):
        raise ProviderProblem(kept.message, detail=kept.detail)
    return kept


def _read_keys_anew(oidc: Oidc) -> Mapping[str, Any] | ProviderProblem:
    found: Mapping[str, Any] | ProviderProblem
    try:
        found = _read_keys(oidc)
    except ProviderProblem as problem:
        if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:  # of this process
            raise
        found = problem
    with _lock:
        _known_keys[oidc.issuer] = (time.monotonic(), found)
    return found


def _read_keys(oidc: Oidc) -> Mapping[str, Any]:
    """Return the keys that the provider publishes now. Raises ProviderProblem."""
    url = published(oidc).address("jwks_uri")
    answer = ask(oidc, "GET", url)
    if answer.status != HTTPStatus.OK:
        raise ProviderProblem(NOT_ACCEPTED, detail=f"{url}: HTTP {answer.status}")
    return answer.body


def _needed(oidc: Oidc) -> set[str]:
    """Return the claims that the settings need."""
    needed: set[str] = set()
    if oidc.creates_accounts:
        needed |= {oidc.username_claim, "email"}
    if oidc.required_group or any(group != EVERYONE for group, _ in oidc.roles):
        needed.add(oidc.groups_claim)
    return needed | MAIL if oidc.email_domains else needed


def _merged(found: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of an ID token, and those that only userinfo has.

    A mail address and whether it is verified are of one source: the one that has both.
    """
    source = more if len(MAIL & more.keys()) > len(MAIL & found.keys()) else found
    mail = {name: source[name] for name in MAIL & source.keys()}
    rest = {**more, **found}
    return {name: value for name, value in rest.items() if name not in MAIL} | mail
