"""The objects below a prefix of an S3 bucket: listed, digested and downloaded.

The credentials are those that boto3 finds in the environment. A client belongs to one process, so
that worker processes of loaders, which are forked, have clients of their own.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import boto3
from blake3 import blake3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError
from urllib3.exceptions import HTTPError

from trainops.checkpoint_storage import Bucket
from trainops.datasets.errors import DataError, DirectoryAway, changed
from trainops.datasets.files import MAX_FILES, FoundFile
from trainops.datasets.manifest import BLOCK_BYTES, PIECE_BYTES, num_blocks

MAX_PART_BYTES = 255  # of a name between two slashes, on a file system
NUM_TRIES = 3  # of a block whose connection breaks while it is read
ABSENT = ("404", "NoSuchKey")
REPLACED = ("412", "PreconditionFailed", "416", "InvalidRange")
BROKEN = (
    BotoCoreError, Boto3Error, HTTPError, ConnectionError, TimeoutError,
    RetriesExceededError, S3DownloadFailedError,
)  # fmt: skip
TRANSFER = TransferConfig(max_concurrency=4)
CLIENT = Config(
    signature_version="s3v4",
    connect_timeout=10,
    read_timeout=60,
    retries={"total_max_attempts": 4, "mode": "standard"},
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    max_pool_connections=16,
)


class Prefix:
    """The objects whose keys begin with the prefix and a slash; a name is the rest of the key.

    All methods raise DirectoryAway where the bucket does not answer or refuses the credentials.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self._start = f"{bucket.prefix}/" if bucket.prefix else ""
        self._connected: Any = None
        self._pid = 0

    def __str__(self) -> str:
        return str(self.bucket)

    def found(self) -> list[FoundFile]:
        """Return all objects, sorted by name; keys that end with a slash stand for folders.

        Raises DataError for a name that no file can have.
        """
        found: list[FoundFile] = []
        for each in self._listed(self._start):
            name = each["Key"].removeprefix(self._start)
            if name.endswith("/") and not each["Size"]:
                continue
            self._require_name(name)
            changed_ns = int(each["LastModified"].timestamp()) * 10**9
            found.append(FoundFile(name, each["Size"], changed_ns, each["ETag"]))
            if len(found) > MAX_FILES:
                raise DataError(f"{self} has more than {MAX_FILES} objects; pack them into shards")
        found.sort()
        self._require_no_file_is_a_folder(found)
        return found

    def digests_of(self, found: FoundFile) -> list[bytes]:
        """Return the digests of an object's blocks. Raises DirectoryChanged."""
        blocks = range(num_blocks(found.size_bytes))
        return [self.block_digest(found, number) for number in blocks]

    def block_digest(self, found: FoundFile, number: int) -> bytes:
        """Return the digest of a block of the version that was listed. Raises DirectoryChanged."""
        return self._retried(lambda: self._block_digest(found, number))

    def download(self, name: str, file: IO[bytes]) -> None:
        """Write an object into an open file. Raises DirectoryChanged where it is missing."""
        with self._answers(name):
            self._client().download_fileobj(
                self.bucket.name, self._start + name, file, Config=TRANSFER
            )

    def _block_digest(self, found: FoundFile, number: int) -> bytes:
        first, hasher = number * BLOCK_BYTES, blake3()
        last = min(first + BLOCK_BYTES, found.size_bytes) - 1
        with self._answers(found.name):
            body = self._client().get_object(
                Bucket=self.bucket.name, Key=self._start + found.name, IfMatch=found.version,
                Range=f"bytes={first}-{last}",
            )["Body"]  # fmt: skip
            while piece := body.read(PIECE_BYTES):
                hasher.update(piece)
        return hasher.digest()

    def _retried(self, call: Callable[[], bytes]) -> bytes:
        for _ in range(NUM_TRIES - 1):
            try:
                return call()
            except DirectoryAway as error:
                if isinstance(error.__cause__, ClientError):
                    raise  # botocore has tried it again
        return call()

    @contextmanager
    def _answers(self, name: str = "") -> Iterator[None]:
        """Turn errors of the libraries into DirectoryChanged and DirectoryAway."""
        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if name and code in REPLACED:
                raise changed(self, [f"{name} changed while it was read"]) from error
            if name and code in ABSENT and not self._has(name):
                raise changed(self, [f"{name} is missing"]) from error
            raise DirectoryAway(f"{self} cannot be read: {error}") from error
        except BROKEN as error:
            raise DirectoryAway(f"{self} does not answer: {error}") from error

    def _has(self, name: str) -> bool:
        """Whether the object is listed: a bucket that is gone raises DirectoryAway."""
        key = self._start + name
        return any(each["Key"] == key for each in self._listed(key))

    def _listed(self, start: str) -> Iterator[dict[str, Any]]:
        with self._answers():
            pages = self._client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket.name, Prefix=start):
                yield from page.get("Contents", ())

    def _require_name(self, name: str) -> None:
        parts = name.split("/")
        if (
            {"", ".", ".."} & set(parts)
            or "\0" in name
            or max(len(part.encode()) for part in parts) > MAX_PART_BYTES
        ):
            raise DataError(
                f"{self} holds {name!r}; allowed: names of files, in which each part between "
                f"slashes has 1 to {MAX_PART_BYTES} bytes and is not . or .."
            )

    def _require_no_file_is_a_folder(self, found: list[FoundFile]) -> None:
        names = {each.name for each in found}
        for name in names:
            folder = name
            while folder := folder.rpartition("/")[0]:
                if folder in names:
                    raise DataError(
                        f"{self} holds {folder!r} and {name!r}; allowed: names of files, of which "
                        "none is a folder of another"
                    )

    def _client(self) -> Any:
        if self._pid != os.getpid():
            options = dict(self.bucket.options)
            style = options.pop("addressing_style", "auto")
            config = CLIENT.merge(Config(s3={"addressing_style": style}))
            # A session of its own: the default one is not for several threads.
            self._connected = boto3.session.Session().client("s3", config=config, **options)
            self._pid = os.getpid()
        return self._connected

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connected": None, "_pid": 0}
