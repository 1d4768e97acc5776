"""Confined processes that are forked from one that has imported torch.

Function, limits and JSON are those of `trainops.confined`, whose own process spends three seconds
of CPU time on imports. Tests of that process, and whole installations, start it.
"""

import json
import os
from collections.abc import Mapping
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from trainops.confined.calling import ConfinedProcessFailed
from trainops.confined.limits import Limits, confine, confine_memory
from trainops.process.forkserver import WARM

RECIPES = "TRAINOPS_RECIPES"
FORKING = get_context("forkserver")
FORKING.set_forkserver_preload([*WARM, "trainops.files.exchange"])


def call(module: str, request: Mapping[str, object], limits: Limits) -> Any:
    receiving, sending = FORKING.Pipe(duplex=False)
    given = (sending, module, json.dumps(request), limits, os.environ.get(RECIPES, ""))
    process = FORKING.Process(target=_answer, args=given, daemon=True)
    with receiving:
        process.start()
        sending.close()
        try:
            answer = receiving.recv()
        except EOFError:
            answer = None
    process.join()
    if answer is None:
        raise ConfinedProcessFailed(f"The process ended with exit code {process.exitcode}.")
    return json.loads(answer)


def _answer(sending: Connection, module: str, request: str, limits: Limits, recipes: str) -> None:
    os.environ[RECIPES] = recipes
    confine(limits)
    answer = import_module(module).answer
    confine_memory(limits)
    sending.send(json.dumps(answer(json.loads(request))))
