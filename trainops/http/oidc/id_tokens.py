"""Verification of ID tokens: signature by a key of the provider, issuer, audience, times, nonce.

And of logout tokens, which have an event instead of a nonce.
"""

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from trainops.http.oidc.errors import ProviderProblem
from trainops.http.oidc.requests import NOT_ACCEPTED
from trainops.oidc_settings import Oidc

# Of public keys only: with HS256 the client secret, or a public key, would sign.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
    "EdDSA",
)  # fmt: skip
TYPES = ("RSA", "EC", "OKP")
LEEWAY_SECONDS = 60  # that the clocks may differ
MAX_SUBJECT = 255
MAX_AGE_SECONDS = 300  # of a logout token
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
MAX_HEADER_BYTES = 16_384  # a chain of certificates (x5c) fits


class _Headers(JWSRegistry):
    """Ignores what it does not know in a header, except what `crit` says must be known."""

    max_header_length = MAX_HEADER_BYTES

    def __init__(self) -> None:
        super().__init__(algorithms=ALGORITHMS, strict_check_header=False)


def verified(
    oidc: Oidc, token: str, published_keys: Mapping[str, Any], *, nonce: str
) -> dict[str, Any]:
    """Return the claims of an ID token. Raises ProviderProblem."""
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": oidc.issuer},
        sub={"essential": True},
        aud={"essential": True, "value": oidc.client_id},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    claims = _decoded(token, published_keys, registry, "the ID token")
    _require_party(oidc, claims)
    return claims


def verified_logout(oidc: Oidc, token: str, published_keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of a logout token. Raises ProviderProblem.

    An ID token is refused: it has a nonce, and no event.
    """
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": oidc.issuer},
        aud={"essential": True, "value": oidc.client_id},
        exp={"essential": True},
        iat={"essential": True},
        jti={"essential": True},
    )
    claims = _decoded(token, published_keys, registry, "the logout token")
    named = [claims[name] for name in ("sub", "sid") if name in claims]
    if time.time() - claims["iat"] > MAX_AGE_SECONDS:
        problem = f"got iat {claims['iat']}; allowed: at most {MAX_AGE_SECONDS} seconds ago"
    elif "nonce" in claims:
        problem = "got a nonce; allowed: none"
    elif not _has_event(claims):
        problem = f"got no event of a sign-out; allowed: {LOGOUT}"
    elif not named or not all(map(_is_name, [*named, claims["jti"]])):
        problem = f"got other names than text of 1 to {MAX_SUBJECT} characters as jti, sub and sid"
    else:
        return claims
    raise ProviderProblem(NOT_ACCEPTED, detail=f"the logout token: {problem}")


def require_addressed(oidc: Oidc, token: str) -> None:
    """Raise ProviderProblem unless a token says that it is a logout token for this client.

    Anyone can send one: what is none is refused before the provider is asked for its keys.
    """
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise ProviderProblem(NOT_ACCEPTED, detail="the logout token cannot be read")
    audience = claims.get("aud")
    is_for_us = oidc.client_id in (audience if isinstance(audience, list) else [audience])
    if claims.get("iss") != oidc.issuer or not is_for_us or not _has_event(claims):
        raise ProviderProblem(NOT_ACCEPTED, detail="the logout token is not for this client")


def _has_event(claims: Mapping[str, Any]) -> bool:
    events = claims.get("events")
    return isinstance(events, dict) and LOGOUT in events


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_SUBJECT


def _decoded(
    token: str, published_keys: Mapping[str, Any], registry: jwt.JWTClaimsRegistry, what: str
) -> dict[str, Any]:
    try:
        claims = jwt.decode(token, usable_keys(published_keys), registry=_Headers()).claims
        registry.validate(claims)
    except (JoseError, ValueError, TypeError) as error:
        detail = f"{what}: {type(error).__name__}: {error}"
        raise ProviderProblem(NOT_ACCEPTED, detail=detail[:300]) from error
    return claims


def _require_party(oidc: Oidc, claims: Mapping[str, Any]) -> None:
    """Raise ProviderProblem where the token was issued to another client."""
    party = claims.get("azp", oidc.client_id)
    has_others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if party != oidc.client_id or (has_others and "azp" not in claims):
        detail = f"the ID token is of {party!r} for {claims['aud']!r}; allowed: {oidc.client_id!r}"
        raise ProviderProblem(NOT_ACCEPTED, detail=detail[:300])
    if not isinstance(claims["nonce"], str) or not 0 < len(claims["sub"]) <= MAX_SUBJECT:
        raise ProviderProblem(NOT_ACCEPTED, detail="the ID token: the nonce or the subject")


def usable_keys(published: Mapping[str, Any]) -> jwk.KeySet:
    """Return the usable public keys; a provider may publish others. Raises ValueError: none is."""
    keys: list[jwk.Key] = []
    listed = published.get("keys")
    for each in listed if isinstance(listed, list) else []:
        is_public = isinstance(each, dict) and each.get("kty") in TYPES
        if not is_public or each.get("use", "sig") != "sig":
            continue
        try:
            keys.append(jwk.import_key(each))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise ValueError("the provider publishes no usable key")
    return jwk.KeySet(keys)
