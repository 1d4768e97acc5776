"""`python -m trainops.confined MODULE`: answer one request, read from stdin, on stdout."""

import json
import os
import sys
from importlib import import_module

from trainops.confined.limits import Limits, confine, confine_memory
from trainops.process.kinship import die_with


def main(module: str) -> None:
    request = json.load(sys.stdin)
    die_with(request["parent"])
    limits = Limits(**request["limits"])
    confine(limits)
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed, also by libraries and recipes
    answer = import_module(module).answer
    confine_memory(limits)
    with os.fdopen(answers, "w") as file:
        json.dump(answer(request["request"]), file)
    os._exit(0)  # the answer is complete: threads of libraries cannot spoil it at their end


if __name__ == "__main__":
    main(sys.argv[1])
