"""Options of `python3 -m trainops chaos`. Standard library only: help needs no packages."""

import argparse
import secrets


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m trainops chaos",
        description="Inflict random faults on an installation of its own, and judge what is left.",
    )
    parser.add_argument("--seconds", type=float, default=120, help="how long (default: 120)")
    parser.add_argument("--faults", type=int, help="the number of faults, however long it takes")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument(
        "--postgres", action="store_true", help="PostgreSQL, and a second machine with a network"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="FAULT", help="draw from these faults only"
    )
    return parser
