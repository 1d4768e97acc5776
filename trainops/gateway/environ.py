"""What an ASGI server says about a request, as the environment of a WSGI application."""

import sys
from typing import IO, TypeAlias
from urllib.parse import unquote_to_bytes
from wsgiref.types import WSGIEnvironment

from trainops.gateway.asgi import Headers, Scope

Environ: TypeAlias = WSGIEnvironment
UNPREFIXED = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}


def environ_of(scope: Scope) -> Environ:
    """Return the WSGI environment of an HTTP request, without `wsgi.input`.

    Headers whose names hold an underscore are left out: they would take the place of those with a
    hyphen, which a proxy sets. So is Transfer-Encoding, which the server has decoded.
    """
    path = unquote_to_bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    host, port = scope.get("server") or ("localhost", 80)
    client = scope.get("client") or ("", 0)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    _add_headers(environ, scope["headers"])
    return environ


def _add_headers(environ: Environ, headers: Headers) -> None:
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if "_" in name or name == "transfer-encoding":
            continue
        key = UNPREFIXED.get(name) or f"HTTP_{name.upper().replace('-', '_')}"
        separator = "; " if name == "cookie" else ","
        environ[key] = f"{environ[key]}{separator}{value}" if key in environ else value


def with_body(environ: Environ, body: IO[bytes], num_bytes: int) -> Environ:
    return environ | {"wsgi.input": body, "CONTENT_LENGTH": str(num_bytes)}
