"""Prefixes of buckets that can be registered as datasets.

TRAINOPS_DATASET_BUCKETS names them, and is read once, at the start. Endpoints and regions are given
there only; credentials come from the environment of web and workers, as for checkpoints.
"""

import os
from collections.abc import Iterable, Mapping

from trainops.checkpoint_storage import Bucket, parse

VARIABLE = "TRAINOPS_DATASET_BUCKETS"
ALLOWED = "s3://BUCKET/PREFIX?endpoint_url=…&region_name=…, separated by spaces"
# All that a process which reads a bucket gets of the environment besides what any process gets.
ENVIRONMENT = (
    "HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
ENVIRONMENT_PREFIX = "AWS_"


def read(environment: Mapping[str, str] = os.environ) -> tuple[Bucket, ...]:
    """Return the allowed prefixes. Raises ValueError: what was given, and what is allowed."""
    return tuple(_s3(each, VARIABLE, ALLOWED) for each in environment.get(VARIABLE, "").split())


def named(address: str) -> Bucket:
    """Return the prefix that a user names, without options.

    Raises:
        ValueError: what was given, and what is allowed.
    """
    bucket = _s3(address, "path", "s3://BUCKET/PREFIX")
    if bucket.options:
        raise ValueError(
            f"path is {address[:200]!r}; allowed: s3://BUCKET/PREFIX without options, which the "
            f"administrator names in {VARIABLE}"
        )
    return bucket


def within(bucket: Bucket, allowed: Iterable[Bucket]) -> Bucket | None:
    """Return the prefix with the options of the allowed one that contains it, or None."""
    for each in allowed:
        is_below = not each.prefix or f"{bucket.prefix}/".startswith(f"{each.prefix}/")
        if each.name == bucket.name and is_below:
            return Bucket(bucket.scheme, bucket.name, bucket.prefix, each.options)
    return None


def variables(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of the environment variables that boto3 may need."""
    of_aws = (name for name in environment if name.startswith(ENVIRONMENT_PREFIX))
    return (*ENVIRONMENT, *of_aws)


def _s3(given: str, variable: str, allowed: str) -> Bucket:
    scheme = given.partition("://")[0]
    if scheme != "s3" or "://" not in given:
        raise ValueError(f"{variable} names {scheme[:20]!r}; allowed: {allowed}")
    return parse(given, variable, allowed)
