"""Where checkpoints are kept: a directory, or a bucket of S3, Google Cloud Storage or Azure.

TRAINOPS_CHECKPOINT_STORAGE says it, and is read once, at start. Credentials are never in it: the
libraries of the storages read them from the environment.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from trainops.key_files import read_secrets

VARIABLE = "TRAINOPS_CHECKPOINT_STORAGE"
KEY_VARIABLE = "TRAINOPS_CHECKPOINT_KEY_FILE"
LINK_SECONDS = 3600  # how long the link to a file is valid
MEMORY_BYTES = 8 * 2**20  # of a file being read; what is more goes through a temporary file
ALLOWED = (
    "a directory, s3://BUCKET/PREFIX?endpoint_url=…&region_name=…, gs://BUCKET/PREFIX, or "
    "azure://CONTAINER/PREFIX?account_name=…"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


@dataclass(frozen=True, slots=True)
class BucketKind:
    """A kind of bucket: what django-storages calls it, and what of it may be chosen."""

    backend: str
    library: str  # a module that only the right extra installs
    extra: str  # of ours, that brings it; empty: it comes with everything
    options: tuple[str, ...]


KINDS = {
    "s3": BucketKind("storages.backends.s3.S3Storage", "boto3", "",
               ("endpoint_url", "region_name", "addressing_style")),
    "gs": BucketKind("storages.backends.gcloud.GoogleCloudStorage", "google.cloud.storage", "gcs",
               ("project_id", "custom_endpoint")),
    "azure": BucketKind("storages.backends.azure_storage.AzureStorage", "azure.storage.blob",
                  "azure", ("account_name", "endpoint_suffix")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bucket:
    """One place in an object store."""

    scheme: str
    name: str
    prefix: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def backend(self, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
        """Return the entry of STORAGES that leads there."""
        options: dict[str, Any] = {"location": self.prefix, **dict(self.options)}
        match self.scheme:
            case "s3":
                options |= {"bucket_name": self.name, "querystring_expire": LINK_SECONDS,
                            "signature_version": "s3v4"}  # fmt: skip
            case "gs":
                options |= {"bucket_name": self.name, "max_memory_size": MEMORY_BYTES,
                            "expiration": timedelta(seconds=LINK_SECONDS)}  # fmt: skip
            case "azure":
                options |= {"azure_container": self.name, "expiration_secs": LINK_SECONDS,
                            "overwrite_files": True, **_azure_credentials(environment)}  # fmt: skip
        return {"BACKEND": KINDS[self.scheme].backend, "OPTIONS": options}

    @property
    def url(self) -> str:
        """The URL with its options, as `parse` reads it."""
        query = urlencode(self.options)
        return f"{self}?{query}" if query else str(self)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}/{self.prefix}".rstrip("/")


def read(environment: Mapping[str, str] = os.environ) -> Path | Bucket | None:
    """Return what TRAINOPS_CHECKPOINT_STORAGE says; None where it is not set.

    Raises:
        ValueError: what was given, and what is allowed.
    """
    given = environment.get(VARIABLE, "")
    if "://" in given or given.partition(":")[0] in KINDS:
        return parse(given)
    return Path(given) if given else None


def read_secret_keys(
    storage: Path | Bucket | None, environment: Mapping[str, str] = os.environ
) -> tuple[bytes, ...]:
    """Return the keys by which checkpoints in the bucket are encrypted, the one of new ones first.

    Raises:
        ValueError: what was given, and what is allowed.
    """
    given = environment.get(KEY_VARIABLE, "")
    if not given:
        return ()
    if not isinstance(storage, Bucket):
        raise ValueError(
            f"{KEY_VARIABLE} encrypts checkpoints in a bucket, and {VARIABLE} names none. Encrypt "
            f"the disk of a directory instead, and unset {KEY_VARIABLE}."
        )
    try:
        return read_secrets(Path(given))
    except OSError as error:
        raise ValueError(f"{KEY_VARIABLE}: {given} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{KEY_VARIABLE}: {error}") from None


def parse(given: str, variable: str = VARIABLE, allowed: str = ALLOWED) -> Bucket:
    """Return the bucket that a URL names, after a look whether its library is installed.

    `variable` and `allowed` are named by errors.

    Raises:
        ValueError: what was given, and what is allowed; a password in it is not repeated.
    """
    try:
        url = urlsplit(given)
    except ValueError as error:
        raise ValueError(f"{variable} is not a URL ({error}); allowed: {allowed}") from None
    if "@" in unquote(given):  # also in the URL that is one of its options
        raise ValueError(
            f"{variable} holds a user or a password; credentials come from the environment "
            "(for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of the machine)"
        )
    if problems := list(_problems(url)):
        raise ValueError(f"{variable} is {given!r}: {'; '.join(problems)}; allowed: {allowed}")
    _require_library(url.scheme, variable)
    options = tuple(sorted(parse_qsl(url.query)))
    return Bucket(url.scheme, url.netloc, url.path.strip("/"), options)


def _problems(url: SplitResult) -> Iterator[str]:
    if url.scheme not in KINDS:
        near = get_close_matches(url.scheme, KINDS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        yield f"{url.scheme}:// is not known{hint}"
        return
    if not _NAME.fullmatch(url.netloc):
        yield f"{url.netloc!r} is not a bucket name"
    prefix = url.path.strip("/")
    if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/"))):
        yield f"{prefix!r} is not a prefix (allowed: letters, digits and . _ = - between slashes)"
    if url.fragment:
        yield f"#{url.fragment} is not allowed"
    yield from _problems_of_options(url)


def _problems_of_options(url: SplitResult) -> Iterator[str]:
    allowed = KINDS[url.scheme].options
    given = parse_qsl(url.query, keep_blank_values=True)
    for name, value in given:
        if name not in allowed:
            yield f"{name!r} is not an option of {url.scheme}:// ({', '.join(allowed)})"
        elif not value:
            yield f"{name} is empty"
        elif name in ("endpoint_url", "custom_endpoint") and not _is_address(value):
            yield f"{name} must be http:// or https:// with a host"
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        yield "an option is given twice"
    if url.scheme == "azure" and "account_name" not in names:
        yield "account_name is missing"


def _is_address(value: str) -> bool:
    address = urlsplit(value)
    return address.scheme in ("http", "https") and bool(address.hostname)


def _require_library(scheme: str, variable: str) -> None:
    kind = KINDS[scheme]
    try:
        is_installed = find_spec(kind.library) is not None
    except ModuleNotFoundError:  # not even the package around it
        is_installed = False
    if not is_installed:
        remedy = f"install the extra {kind.extra!r}: pip install '.[{kind.extra}]'"
        if not kind.extra:
            remedy = f"pip install {kind.library}"
        raise ValueError(f"{variable} names {scheme}://, and {kind.library} is missing; {remedy}")


def _azure_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """What django-storages does not read by itself, by the names that Azure's tools know."""
    names = {
        "account_key": "AZURE_STORAGE_KEY",
        "sas_token": "AZURE_STORAGE_SAS_TOKEN",
        "connection_string": "AZURE_STORAGE_CONNECTION_STRING",
    }
    return {option: environment[name] for option, name in names.items() if environment.get(name)}
