"""What a confined process is made to do by the tests: `request` names one of these functions."""

import os
import resource
import signal
import sys
import time
from pathlib import Path

import psutil


def answer(request):
    return {"answer": globals()[request["do"]](**request.get("with", {}))}


def environment():
    return dict(os.environ)


def limits():
    names = ("CORE", "CPU", "FSIZE", "NOFILE", "AS")
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in names}


def niceness():
    return os.nice(0)


def take_memory(num_bytes):
    content = bytearray(num_bytes)
    return {"taken": len(content), "rss": psutil.Process().memory_info().rss}


def write(path, num_bytes):
    with Path(path).open("wb") as file:
        file.writelines(bytes(2**20) for _ in range(num_bytes // 2**20))


def sleep(marker):
    Path(marker).write_text(str(os.getpid()))
    time.sleep(600)


def spin():
    while True:
        pass


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def fail():
    raise ValueError("what is wrong with it")


def talk():
    sys.stdout.write("this is no answer")
    sys.stdout.flush()
    os.write(1, b"nor is this")
    return "the answer"


def answer_at_length(num_bytes):
    return "x" * num_bytes
