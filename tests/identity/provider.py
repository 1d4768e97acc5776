"""A provider of OpenID Connect in a process of its own, with RS256 keys: `python provider.py`.

It checks what a real one checks: client, secret, redirect address, PKCE, and that a code is used
once. It approves every authorization as the person that `/control` names, which also plants faults.
Prints its port.
"""

import base64
import hmac
import json
import secrets
import sys
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from joserfc import jwk, jwt
from joserfc.jws import JWSRegistry

CLIENT, SECRET = "trainops", "a secret: of 100 % and more"
EVENT = "http://schemas.openid.net/event/backchannel-logout"
REDIRECTS = ("http://testserver/login/oidc/callback",)
KEY = jwk.RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"})
FOREIGN = jwk.RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": KEY.thumbprint()})
KEY.ensure_kid()
START = {
    "claims": {"sub": "1", "preferred_username": "ben", "groups": ["staff"]},
    "userinfo": {},
    "id_token": {},  # claims instead of the right ones; None removes one
    "sign_with": "RS256",
    "header": {},  # further parameters of the header of an ID token
    "metadata": {},
    "answers": {},  # path: [status, body]
    "error": "",
    "redirects": [],
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        path, query = urlsplit(self.path).path, self._fields(urlsplit(self.path).query)
        if self._planted(path):
            return
        match path:
            case "/.well-known/openid-configuration":
                self._json(200, self._metadata())
            case "/jwks":
                rest = [{"kty": "unknown", "use": "sig"}, {"kty": "oct", "k": "c2VjcmV0"}]
                self._json(200, {"keys": [*rest, KEY.as_dict(private=False)]})
            case "/authorize":
                self._authorize(query)
            case "/userinfo":
                self._userinfo()
            case "/end":
                self._redirect(query["post_logout_redirect_uri"])
            case _:
                self._json(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        path = urlsplit(self.path).path
        if path == "/control":
            self.server.state = {**START, **json.loads(body)}
            self._json(200, {})
        elif path == "/logout-token":
            self._json(200, {"token": self._logout_token(json.loads(body))})
        elif path == "/requests":
            self._json(200, {"requests": self.server.requests})
        elif not self._planted(path):
            self._token(self._fields(body))

    def _planted(self, path):
        self.server.requests.append(f"{self.command} {path}")
        if (planted := self.server.state["answers"].get(path)) is None:
            return False
        status, body = planted
        if status == 302:
            self._redirect(body)
        else:
            self._send(status, body.encode())
        return True

    def _metadata(self):
        at = self.server.issuer
        return {
            "issuer": at,
            "authorization_endpoint": f"{at}/authorize",
            "token_endpoint": f"{at}/token",
            "jwks_uri": f"{at}/jwks",
            "userinfo_endpoint": f"{at}/userinfo",
            "end_session_endpoint": f"{at}/end",
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["openid", "profile", "email"],
            **self.server.state["metadata"],
        }

    def _authorize(self, query):
        redirects = (*REDIRECTS, *self.server.state["redirects"])
        is_right = (
            query.get("client_id") == CLIENT
            and query.get("redirect_uri") in redirects
            and query.get("response_type") == "code"
            and "openid" in query.get("scope", "").split()
            and query.get("code_challenge_method") == "S256"
            and len(query.get("code_challenge", "")) == 43
        )
        if not is_right:
            self._json(400, {"error": "invalid_request"})
            return
        answer = {"state": query["state"], "iss": self.server.issuer}
        if self.server.state["error"]:
            answer |= {"error": self.server.state["error"], "error_description": "of the test"}
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self.server.codes[answer["code"]] = query
        self._redirect(f"{query['redirect_uri']}?{urlencode(answer)}")

    def _token(self, form):
        if not self._is_client(form):
            self._json(401, {"error": "invalid_client"})
            return
        begun = self.server.codes.pop(form.get("code"), None)
        verifier = form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        is_right = (
            begun is not None
            and form.get("grant_type") == "authorization_code"
            and form.get("redirect_uri") == begun["redirect_uri"]
            and digest == begun["code_challenge"]
            and 43 <= len(verifier) <= 128
        )
        if not is_right:
            self._json(400, {"error": "invalid_grant", "error_description": "not this code"})
            return
        access = secrets.token_urlsafe(16)
        self.server.access.add(access)
        self._json(
            200,
            {
                "token_type": "Bearer",
                "access_token": access,
                "id_token": self._id_token(begun["nonce"]),
            },
        )

    def _is_client(self, form):
        scheme, _, pair = self.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            given = base64.b64decode(pair).decode().partition(":")
            return (unquote(given[0]), unquote(given[2])) == (CLIENT, SECRET)
        return (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)

    def _id_token(self, nonce):
        state, now = self.server.state, int(time.time())
        claims = {"iss": self.server.issuer, "aud": CLIENT, "iat": now, "exp": now + 300}
        return self._signed({**claims, "nonce": nonce, **state["claims"], **state["id_token"]})

    def _logout_token(self, given):
        now = int(time.time())
        claims = {"iss": self.server.issuer, "aud": CLIENT, "iat": now, "exp": now + 120}
        claims |= {"jti": secrets.token_urlsafe(8), "events": {EVENT: {}}}
        return self._signed({**claims, **given})

    def _signed(self, claims):
        state = self.server.state
        claims = {name: value for name, value in claims.items() if value is not None}
        match state["sign_with"]:
            case "foreign":
                return jwt.encode({"alg": "RS256", "kid": KEY.kid}, claims, FOREIGN)
            case "HS256":  # with what everyone can read
                content = _compact({"alg": "HS256", "kid": KEY.kid}, claims)
                public = KEY.as_pem(private=False)
                signature = hmac.digest(public, content.encode(), "sha256")
                return f"{content}.{_encoded(signature)}"
            case "none":
                return _compact({"alg": "none"}, claims) + "."
            case "nothing":
                return "no token"
        header = {"alg": "RS256", "kid": KEY.kid, **state["header"]}
        registry = JWSRegistry(strict_check_header=False)
        registry.max_header_length = 10**6
        registry.check_header = lambda header: None
        return jwt.encode(header, claims, KEY, registry=registry)

    def _userinfo(self):
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if bearer not in self.server.access:
            self._json(401, {})
            return
        state = self.server.state
        self._json(200, {"sub": state["claims"]["sub"], **state["userinfo"]})

    def _fields(self, text):
        return {name: values[0] for name, values in parse_qs(text).items()}

    def _redirect(self, address):
        self.send_response(302)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, status, body):
        self._send(status, json.dumps(body).encode())

    def _send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def _compact(*parts):
    return ".".join(_encoded(json.dumps(each).encode()) for each in parts)


def _encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.issuer = f"http://127.0.0.1:{server.server_port}"
    server.state, server.codes, server.access, server.requests = START, {}, set(), []
    print(server.server_port, flush=True)  # noqa: T201 - for the process that started it
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
