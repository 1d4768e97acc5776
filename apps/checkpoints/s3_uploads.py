"""Uploads to S3 in parts, which a later call continues: also of another process or machine.

S3 keeps the parts of an upload that was cut off. Its ETag of a part is the MD5 of what it
received, so a part is sent again unless it is there with the bytes of the file. With encryption by
keys of its own (SSE-KMS, SSE-C) ETags are something else: then all parts are sent again.
"""

import base64
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from io import BytesIO
from typing import Any, TypedDict

from botocore.exceptions import ClientError

from apps.checkpoints.objects import Content
from apps.checkpoints.trying import NobodyWaits

MIB = 2**20
PART_BYTES, MAX_PARTS = 8 * MIB, 10_000
NUM_THREADS = 4  # parts at once, each of which is in memory
LOOK_SECONDS = 0.02
GONE = "NoSuchUpload"  # completed or aborted meanwhile


class UploadedPart(TypedDict):
    """A part that S3 has, as it is named when the upload is completed."""

    PartNumber: int
    ETag: str


class _Unwanted(BytesIO):
    """Bytes that are read until `stop` is set: then raises NobodyWaits."""

    def __init__(self, content: bytes, stop: threading.Event) -> None:
        super().__init__(content)
        self._stop = stop

    def read(self, size: int | None = -1) -> bytes:
        if self._stop.is_set():
            raise NobodyWaits
        return super().read(size)


def put(client: Any, bucket: str, key: str, content: Content, stop: threading.Event) -> None:
    """Upload it whole, or not at all; S3 verifies the MD5 of what it receives.

    Raises NobodyWaits soon after `stop` is set; parts that were sent stay, for the next call.
    """
    if content.size_bytes > PART_BYTES:
        _Upload(client, bucket, key, content, stop).finish()
        return
    with content.open() as file:
        whole = file.read()
    try:
        client.put_object(
            Bucket=bucket, Key=key, Body=_Unwanted(whole, stop), ContentMD5=_base64(_md5(whole))
        )
    except Exception:
        if stop.is_set():
            raise NobodyWaits from None
        raise


class _Upload:
    def __init__(
        self, client: Any, bucket: str, key: str, content: Content, stop: threading.Event
    ) -> None:
        self._client, self._content, self._stop = client, content, stop
        self._target = {"Bucket": bucket, "Key": key}
        self._num_bytes = content.size_bytes
        self._part_bytes = max(PART_BYTES, -(-self._num_bytes // MAX_PARTS // MIB) * MIB)

    def finish(self) -> None:
        """Send what is missing. An upload that another process ended meanwhile is made anew."""
        upload_id = self._begun() or self._begin()
        try:
            self._complete(upload_id)
        except ClientError as error:
            if error.response["Error"]["Code"] != GONE:
                raise
            self._complete(self._begin())

    def _begin(self) -> str:
        return str(self._client.create_multipart_upload(**self._target)["UploadId"])

    def _begun(self) -> str | None:
        """Return the newest upload of this object that was not completed."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._target["Bucket"], Prefix=self._target["Key"]
        )
        found = [
            (each["Initiated"], each["UploadId"])
            for page in pages
            for each in page.get("Uploads", ())
            if each["Key"] == self._target["Key"]
        ]
        return max(found)[1] if found else None

    def _complete(self, upload_id: str) -> None:
        sent = {**self._target, "UploadId": upload_id}
        pages = self._client.get_paginator("list_parts").paginate(**sent)
        present = {
            each["PartNumber"]: each["ETag"] for page in pages for each in page.get("Parts", ())
        }
        parts = self._send(sent, present)
        try:
            self._client.complete_multipart_upload(**sent, MultipartUpload={"Parts": parts})
        except ClientError:  # also if it was completed, and the response was lost
            if not self._is_stored(parts):
                raise

    def _is_stored(self, parts: list[UploadedPart]) -> bool:
        """Return whether the object consists of these parts: its ETag is the MD5 of theirs."""
        try:
            found = self._client.head_object(**self._target)
        except ClientError:
            return False
        md5s = [each["ETag"].strip('"') for each in parts]
        try:
            whole = _md5(bytes.fromhex("".join(md5s))).hex()
        except ValueError:  # ETags of a store that encrypts by keys of its own
            return False
        return bool(found["ETag"].strip('"') == f"{whole}-{len(parts)}")

    def _send(self, sent: dict[str, str], present: dict[int, str]) -> list[UploadedPart]:
        """Send every part that is not present with the same bytes; return all of them."""
        parts: list[UploadedPart] = []
        threads = ThreadPoolExecutor(NUM_THREADS)
        waiting: set[Future[UploadedPart]] = set()
        try:
            for number, part in self._parts():
                waiting.add(threads.submit(self._part, sent, number, part, present))
                if len(waiting) >= NUM_THREADS:
                    parts += self._ended(waiting)
            while waiting:
                parts += self._ended(waiting)
        except BaseException:
            # A store that does not answer keeps a thread for the timeout of a response.
            threads.shutdown(wait=not self._stop.is_set(), cancel_futures=True)
            if self._stop.is_set():
                raise NobodyWaits from None
            raise
        threads.shutdown()
        return sorted(parts, key=lambda part: part["PartNumber"])

    def _ended(self, waiting: set[Future[UploadedPart]]) -> list[UploadedPart]:
        """Wait until some parts have been sent; return them, and take them out of `waiting`."""
        done: set[Future[UploadedPart]] = set()
        while not done:
            if self._stop.is_set():
                raise NobodyWaits
            done, _ = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
        waiting -= done
        return [each.result() for each in done]

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        with self._content.open() as file:
            for number in range(1, -(-self._num_bytes // self._part_bytes) + 1):
                yield number, file.read(self._part_bytes)

    def _part(
        self, sent: dict[str, str], number: int, content: bytes, present: dict[int, str]
    ) -> UploadedPart:
        md5 = _md5(content)
        if present.get(number, "").strip('"') == md5.hex():
            return {"PartNumber": number, "ETag": present[number]}
        body = _Unwanted(content, self._stop)
        answer = self._client.upload_part(
            **sent, PartNumber=number, Body=body, ContentMD5=_base64(md5)
        )
        return {"PartNumber": number, "ETag": answer["ETag"]}


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
