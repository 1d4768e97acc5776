"""Which command is whose. `up`, `test` and `bench` are ours; the others call a server."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from trainops import paths
from trainops.launch import environment
from trainops.launch.backups import backup, restore
from trainops.launch.doctor import doctor
from trainops.launch.erase import erase
from trainops.launch.refusal import CannotStart
from trainops.launch.sbom import sbom
from trainops.launch.service import install_service
from trainops.launch.signing_keys import signing_keys
from trainops.launch.testing import bench, chaos, test
from trainops.launch.up import up
from trainops.launch.upgrade import upgrade
from trainops.paths import COMMAND

HELP = f"""\
trainops: long machine-learning operations that can be stopped at any moment.

Usage: {COMMAND} COMMAND [OPTIONS]          (details: COMMAND --help)

Local commands
  up               install missing packages, start all services, print the address
  test             set up, then run all checks and tests of the project
  bench            run the benchmarks, print tables, write JSON
  chaos            run a fault-injection test on a separate installation
  install          only set up
  doctor           find what is misconfigured in the installation, with the remedy
  upgrade          with --check: what an upgrade to this version needs, and what must stop
  install-service  write systemd units of this installation, or a batch script of Slurm
  backup, restore  save the whole installation into a directory, and bring it back
  signing-keys     list, accept and remove keys that sign checkpoints; sign older ones
  erase            erase a user with all data, with a certificate
  sbom             print the software bill of materials (CycloneDX)

With a running server
  run              submit the operation of a YAML file
  ls, show         list operations, show one operation
  watch            follow the progress of an operation
  logs, events     show the log, list the events of an operation
  receipt          list what a resume restored, and whether exactly
  wait             wait until an operation is finished; exit code by its state
  metrics          print the metrics of an operation by step, or as CSV
  open             open the page of an operation in the browser
  completion       print the completion script of bash, zsh or fish
  config           print the config of an operation as a file for run
  compare          compare operations: config, code, data, environment, metrics
  export-points    write the metrics of an operation for TensorBoard, MLflow or W&B
  import-runs      make operations of runs of TensorBoard, MLflow or W&B
  download         download the files of an operation, compared with their digests
  media            list or download images, tables and other media of an operation
  cancel           save a checkpoint at the next safe point, then stop
  edit             rename, tag, annotate, archive or acknowledge an operation
  bulk             do one action to all operations that match a query
  resume           resume from the latest healthy checkpoint
  fork, extend     start a new operation from a checkpoint of another
  warm-start       start a new operation with the weights of another
  rm               delete an operation with all its data
  studies          submit, compare and cancel parameter studies
  checkpoints      list, inspect, verify, compare, pin and delete checkpoints
  recipes          list recipes, show their parameters and example files; write or check one
  upload           upload a table (CSV, Parquet), images (NPZ) or text
  datasets         list datasets, register and verify directories
  notifications    manage notification rules, list and retry deliveries
  workers          list the workers
  stats            operations by state and kind, slots, storage, compute hours
  usage            compute and GPU hours of each week by project, owner or kind
  shares           limits and weights of users and projects, and what they use
  login, token     sign in; create an API token
  context          list, add, select and remove servers by name
  users            list and add users, give roles, disable accounts
  reset-password   set a new password; with --local also without a server
"""


def install(arguments: Sequence[str]) -> int:
    """Make the environment and nothing else: for images, and for editors that want it early."""
    environment.require_clone("install")
    parser = argparse.ArgumentParser(
        prog="python3 -m trainops install", description="Install the packages into .venv."
    )
    parser.add_argument(
        "extras", nargs="*", help="extras of pyproject.toml to install, such as test"
    )
    environment.ensure(paths.ROOT / "var" / "log", extras=parser.parse_args(arguments).extras)
    return 0


OURS = {
    "up": up,
    "test": test,
    "bench": bench,
    "chaos": chaos,
    "install": install,
    "doctor": doctor,
    "upgrade": upgrade,
    "install-service": install_service,
    "backup": backup,
    "restore": restore,
    "signing-keys": signing_keys,
    "erase": erase,
    "sbom": sbom,
}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; what is in the way is one line, and 2."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if "_TRAINOPS_COMPLETE" in os.environ:  # a shell completes a command line
        return _command_line(arguments)
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    try:
        if command in OURS:
            return OURS[command](rest)
        return _command_line(arguments)
    except CannotStart as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


def _command_line(arguments: Sequence[str]) -> int:
    environment.require(arguments)
    import_module("trainops.cli").main(list(arguments))
    return 0
