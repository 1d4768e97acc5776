"""Settings of the web server, and who can read its files."""

import os
import stat
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings

from apps.workers.diagnosis.findings import Diagnosis

PUBLIC, PROXY = "TRAINOPS_PUBLIC_URL", "TRAINOPS_BEHIND_HTTPS_PROXY"


def settings_of_web() -> Iterator[Diagnosis]:
    found = [*_debug(), *_hosts(), *_https()]
    yield from found or [Diagnosis.ok("the settings of the web server fit together")]


def _debug() -> Iterator[Diagnosis]:
    if settings.DEBUG:
        yield Diagnosis.warning(
            "TRAINOPS_DEBUG is on: error pages show source and settings", "Unset TRAINOPS_DEBUG."
        )


def _hosts() -> Iterator[Diagnosis]:
    if "*" in settings.ALLOWED_HOSTS:
        yield Diagnosis.warning(
            "TRAINOPS_ALLOWED_HOSTS allows every host name",
            "Name the hosts: foreign pages can otherwise reach the server under their own name.",
        )
    public = urlsplit(settings.PUBLIC_URL or "").hostname
    if public and not any(_covers(each, public) for each in settings.ALLOWED_HOSTS):
        yield Diagnosis.problem(
            f"{PUBLIC} has the host {public}, which TRAINOPS_ALLOWED_HOSTS does not allow",
            f"Add {public} to TRAINOPS_ALLOWED_HOSTS, or links in notifications get 400.",
        )


def _covers(pattern: str, host: str) -> bool:
    if pattern.startswith("."):
        return host == pattern[1:] or host.endswith(pattern)
    return pattern in ("*", host)


def _https() -> Iterator[Diagnosis]:
    scheme = urlsplit(settings.PUBLIC_URL or "").scheme
    if scheme == "https" and not settings.BEHIND_HTTPS_PROXY:
        yield Diagnosis.problem(
            f"{PUBLIC} is an https address, but {PROXY} is not set",
            f"Set {PROXY}=1, so that cookies are sent over HTTPS only and addresses are right.",
        )
    if scheme == "http" and settings.BEHIND_HTTPS_PROXY:
        yield Diagnosis.warning(f"{PUBLIC} is an http address", f"Begin {PUBLIC} with https://.")


def data_directory() -> Iterator[Diagnosis]:
    directory = settings.DATA_DIR
    open_to = [
        path
        for path in (directory, directory / "secret_key", directory / "trainops.sqlite3")
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o007
        and not (path == directory and stat.S_IMODE(path.stat().st_mode) & 0o007 == 0o001)
    ]  # fmt: skip
    for path in open_to:
        yield Diagnosis.problem(f"other users can read {path}", f"chmod o= {path}")
    if not os.access(directory, os.W_OK):
        yield Diagnosis.problem(
            f"{directory} is not writable for this user",
            "Run as the user of the installation, or change the owner.",
        )
    elif not open_to:
        yield Diagnosis.ok(f"{directory} is private")
