"""S3 and compatible stores, through boto3: in parts, from file to file, in several threads."""

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from boto3.s3.transfer import TransferConfig, create_transfer_manager
from botocore.config import Config
from botocore.exceptions import ClientError

from apps.checkpoints import s3_uploads
from apps.checkpoints.objects import NOT_FOUND, Content, Object, Unfinished
from apps.checkpoints.s3_uploads import NUM_THREADS, PART_BYTES
from apps.checkpoints.trying import Missing, NobodyWaits, status_of
from trainops.checkpoint_storage import LINK_SECONDS

LOOK_SECONDS = 0.02
DOWNLOAD = TransferConfig(
    multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=NUM_THREADS
)
# A request is tried three times by botocore, so that a cut costs one part and not the file; the
# whole call again by us. Newer checksums than MD5 are unknown to many servers; ours are in the
# manifest.
PATIENT = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"total_max_attempts": 3, "mode": "standard"},
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    max_pool_connections=16,
)
QUICK = PATIENT.merge(Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1}))


class ListedObject(TypedDict):
    """An object in a list of S3."""

    Key: str
    Size: int
    LastModified: datetime


class ListedUpload(TypedDict):
    """An unfinished multipart upload in a list of S3."""

    Key: str
    UploadId: str
    Initiated: datetime


class ListPage(TypedDict, total=False):
    """A page of a list of S3."""

    Contents: list[ListedObject]
    Uploads: list[ListedUpload]


class S3Objects:
    def __init__(self, storage: Any, *, is_quick: bool = False) -> None:
        storage.client_config = storage.client_config.merge(QUICK if is_quick else PATIENT)
        self._bucket: str = storage.bucket_name
        self._prefix = f"{storage.location}/" if storage.location else ""
        # The resource is one thread's own; its client is for all of them.
        self._client: Any = storage.bucket.meta.client

    def put(self, content: Content, name: str, stop: threading.Event) -> None:
        s3_uploads.put(self._client, self._bucket, self._prefix + name, content, stop)

    def get(self, name: str, path: Path, stop: threading.Event) -> None:
        key = self._prefix + name
        try:
            self._download(key, path, stop)
        except ClientError as error:
            raise self._missing_or(error, name) from error

    def size(self, name: str) -> int:
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
        except ClientError as error:
            raise self._missing_or(error, name) from error
        return int(found["ContentLength"])

    def remove(self, name: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def all(self, prefix: str = "") -> Iterator[Object]:
        for page in self._pages("list_objects_v2", self._prefix + prefix):
            for found in page.get("Contents", ()):
                name = found["Key"].removeprefix(self._prefix)
                yield Object(name, found["Size"], found["LastModified"].timestamp())

    def link(self, name: str, file_name: str) -> str:
        target = {
            "Bucket": self._bucket,
            "Key": self._prefix + name,
            "ResponseContentDisposition": f'attachment; filename="{file_name}"',
            "ResponseContentType": "application/octet-stream",
        }
        return str(
            self._client.generate_presigned_url("get_object", target, ExpiresIn=LINK_SECONDS)
        )

    def unfinished(self) -> Iterator[Unfinished]:
        for page in self._pages("list_multipart_uploads", self._prefix):
            for found in page.get("Uploads", ()):
                name = found["Key"].removeprefix(self._prefix)
                yield Unfinished(name, found["UploadId"], found["Initiated"].timestamp())

    def forget(self, upload: Unfinished) -> None:
        self._client.abort_multipart_upload(
            Bucket=self._bucket, Key=self._prefix + upload.name, UploadId=upload.upload_id
        )

    def _download(self, key: str, path: Path, stop: threading.Event) -> None:
        """Download as boto3's download_file does, but end when `stop` is set."""
        with create_transfer_manager(self._client, DOWNLOAD) as manager:
            transfer = manager.download(self._bucket, key, str(path))
            while not transfer.done():
                if stop.wait(LOOK_SECONDS):
                    raise NobodyWaits  # which the manager takes for a cancel, of its parts, too
            transfer.result()

    def _pages(self, call: str, prefix: str) -> Iterator[ListPage]:
        yield from self._client.get_paginator(call).paginate(Bucket=self._bucket, Prefix=prefix)

    def _missing_or(self, error: Exception, name: str) -> Exception:
        """Whether the object is missing: a bucket that is gone says the same to a HEAD."""
        if status_of(error) != NOT_FOUND:
            return error
        is_there = any(found.name == name for found in self.all(name))
        return error if is_there else Missing(name)
