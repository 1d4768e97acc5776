"""`python3 -m trainops signing-keys`: whose signatures of checkpoints are accepted."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trainops.launch import checks, environment, installation
from trainops.launch.refusal import CannotStart
from trainops.paths import COMMAND

DESCRIPTION = """\
List, accept and remove the keys that sign checkpoints. The key of this installation follows from
its secret key; those of other installations, and of former secret keys, are accepted once they are
in the list. Needs the secret key and the database of the installation, no server.
"""
EPILOG = """\
Exit codes: 0 done; 1 with sign: some checkpoints were not signed, and are named; 1 with verify: no
accepted key has signed it, or it was altered; 2 refused.
"""
ENROLL = """\
Record the key of the present secret key, after the former secret key was lost. Until then
checkpoints are not signed. What the former key signed is accepted again after `trust`.
"""
SIGN = """\
Read every checkpoint that is unsigned or signed by another accepted key, compare it with its
digests, and sign it with the newest key. Run it before TRAINOPS_REQUIRE_SIGNATURES=1 is set, and
before the key of a leaked secret key is removed.
"""
VERIFY = """\
Read a checkpoint of an unpacked archive (`trainops download OPERATION`), also of another
installation, compare its files with their digests, and print which key signed it. Its directories
keep their names: the signature covers them.
"""


def signing_keys(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit code. Raises CannotStart."""
    chosen = _parser().parse_args(arguments)
    environment.require(["signing-keys", *arguments])
    os.umask(checks.umask())
    installation.require()
    installation.open_database()
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    keys = import_module("apps.checkpoints.signing_keys")
    with installation.refusing(keys.KeyRefused):
        if chosen.action == "trust":
            keys.trust(chosen.key, chosen.name)
        elif chosen.action == "distrust":
            removed = keys.distrust(chosen.key)
            print(f"The signatures of {removed} are no longer accepted.")
        elif chosen.action == "enroll":
            for warning in keys.enroll(is_asked=True):
                print(warning, file=sys.stderr)
        elif chosen.action == "sign":
            return _sign(keys)
        elif chosen.action == "verify":
            return _verify(chosen.directory)
        _print(keys)
    return 0


def _sign(keys: Any) -> int:
    if not keys.is_enrolled():
        raise CannotStart(
            f"The key of this installation is not in the list: {keys.own_key()}. If this is the "
            f"right secret key, run `{COMMAND} signing-keys enroll`."
        )
    num_signed = num_refused = 0
    for each in import_module("apps.checkpoints.signing").sign_all():
        num_signed += not each.problem
        num_refused += bool(each.problem)
        if each.problem:
            print(f"not signed: {each.checkpoint.pk}: {each.problem}", file=sys.stderr)
    print(f"Signed {num_signed} checkpoints.")
    return int(num_refused > 0)


def _verify(directory: Path) -> int:
    corrupted: type[Exception] = import_module("trainops.runtime.errors").CheckpointCorrupted
    try:
        found = import_module("apps.checkpoints.signatures").of_copy(directory)
    except corrupted as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"{directory}: {found}; its files are whole.")
    return int(not found.is_accepted)


def _print(keys: Any) -> None:
    signing = keys.own_key() if keys.is_enrolled_now() else ""
    for key, name in keys.accepted().items():
        print(f"{key}  {name}{'  (signs)' if key == signing else ''}")
    for each in keys.not_accepted():
        print(f"{each.pk}  {each.name}  (not accepted: signing-keys trust)")
    if not signing:
        print("The key of this installation signs nothing: signing-keys enroll", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND} signing-keys", description=DESCRIPTION, epilog=EPILOG
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("ls", help="list the keys (default)")
    trust = actions.add_parser("trust", help="accept the signatures of a key")
    trust.add_argument("key", help="public key, 64 hexadecimal digits")
    trust.add_argument("--name", required=True, help="name of its installation")
    distrust = actions.add_parser("distrust", help="accept the signatures of a key no longer")
    distrust.add_argument("key", help="public key, or its beginning")
    actions.add_parser("enroll", help="record a new secret key", description=ENROLL)
    verify = actions.add_parser("verify", help="check a copied checkpoint", description=VERIFY)
    verify.add_argument("directory", type=Path, help="OPERATION/CHECKPOINT of an archive")
    actions.add_parser("sign", help="sign existing checkpoints", description=SIGN)
    return parser
