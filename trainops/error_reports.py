"""Reports of errors to a Sentry server, by the extra `sentry`; off without its address.

A report has the error with its stack, but no values of variables, no bodies, headers or query
strings of requests, no addresses and no names of people: they may be those of patients.
"""

import os
from collections.abc import Mapping
from typing import Any

from trainops import log_format, version

VARIABLE = "TRAINOPS_SENTRY_DSN"
OF_REQUEST = ("url", "method")  # what is kept of it
INSTALL = "pip install 'trainops[sentry]'"


def start(environment: Mapping[str, str] = os.environ) -> None:
    """Begin to report errors of this process, if TRAINOPS_SENTRY_DSN is set. Raises ValueError."""
    dsn = environment.get(VARIABLE, "").strip()
    if not dsn:
        return
    try:
        import sentry_sdk  # noqa: PLC0415 - an extra
        from sentry_sdk.integrations.celery import CeleryIntegration  # noqa: PLC0415
        from sentry_sdk.integrations.django import DjangoIntegration  # noqa: PLC0415
        from sentry_sdk.utils import BadDsn  # noqa: PLC0415
    except ImportError:
        raise ValueError(f"{VARIABLE} is set, which needs the extra sentry: {INSTALL}") from None
    try:
        sentry_sdk.init(
            dsn,
            release=f"trainops@{version.VERSION}",
            server_name=log_format.HOST,
            before_send=_reduced,
            include_local_variables=False,
            max_request_body_size="never",
            max_breadcrumbs=0,  # queries and log lines before the error
            auto_enabling_integrations=False,
            integrations=[DjangoIntegration(), CeleryIntegration()],
        )
    except BadDsn as error:
        allowed = "an address such as https://KEY@sentry.example/1"
        raise ValueError(f"{VARIABLE}: {error}; allowed: {allowed}") from None


def _reduced(event: Any, _: object) -> Any:
    """Leave out what may be about people, and add what the error belongs to."""
    event.pop("user", None)
    request = event.get("request", {})
    event["request"] = {name: request[name] for name in OF_REQUEST if name in request}
    event["tags"] = {**event.get("tags", {}), **log_format.current()}
    return event
