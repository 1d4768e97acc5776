"""A file of a checkpoint to a bucket and back, beside boto3's own transfers.

The server is moto, a process of its own on this machine: the line is fast, and processor time
decides. In turns; megabytes a second.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

MEGABYTES, NUM_ROUNDS = 256, 5
BUCKET = "bench"


def main() -> dict[str, Any]:
    """Measure, print a table, and return megabytes a second by contender."""
    with moto() as address, tempfile.TemporaryDirectory() as directory:
        results = measure(address, Path(directory))
    print(f"Megabytes a second of a file of {MEGABYTES} MB, {NUM_ROUNDS} rounds in turns")
    print(f"{'':24}{'median':>8}{'lowest':>8}{'highest':>8}")
    for name, each in results.items():
        print(f"{name:24}{each['median']:8.0f}{each['lowest']:8.0f}{each['highest']:8.0f}")
    return results


@contextmanager
def moto() -> Iterator[str]:
    """Run an S3 server that knows one empty bucket; yield its address."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def measure(address: str, directory: Path) -> dict[str, Any]:
    from django.conf import settings

    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "trainops.settings",
        "TRAINOPS_DATA_DIR": str(directory),
        "TRAINOPS_CHECKPOINT_STORAGE": f"s3://{BUCKET}/ours?endpoint_url={address}"
        "&region_name=us-east-1",
    }
    import django

    django.setup()
    from apps.checkpoints import objects
    from apps.checkpoints.encrypted_objects import EncryptedObjects

    client = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    bucket: Any = settings.CHECKPOINT_BUCKET
    ours, stop = objects.connected(bucket), threading.Event()
    encrypted = EncryptedObjects(ours, (os.urandom(32),))
    source, target = directory / "source", directory / "target"
    source.write_bytes(os.urandom(MEGABYTES * 10**6))
    contenders: dict[str, Callable[[], object]] = {
        "upload, boto3": lambda: client.upload_file(str(source), BUCKET, "theirs"),
        "upload, trainops": lambda: ours.put(objects.FileContent(source), "model.pt", stop),
        "upload, encrypted": lambda: encrypted.put(source, "encrypted", stop),
        "download, boto3": lambda: client.download_file(BUCKET, "theirs", str(target)),
        "download, trainops": lambda: ours.get("model.pt", target, stop),
        "download, encrypted": lambda: encrypted.get("encrypted", target, stop),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(NUM_ROUNDS):
        for name, transfer in contenders.items():
            target.unlink(missing_ok=True)
            began = time.perf_counter()
            transfer()
            seconds[name].append(time.perf_counter() - began)
    return {name: _rates(each) for name, each in seconds.items()}


def _rates(seconds: list[float]) -> dict[str, float]:
    rates = sorted(MEGABYTES / each for each in seconds)
    return {"median": rates[len(rates) // 2], "lowest": rates[0], "highest": rates[-1]}


if __name__ == "__main__":
    print(json.dumps(main()))
