"""`python3 -m trainops erase USER`: erase one person's data, and keep a certificate of it."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainops.launch import checks, environment, installation
from trainops.launch.refusal import CannotStart
from trainops.paths import COMMAND

DESCRIPTION = """\
Erase the account of a user with all operations, checkpoints, datasets, studies, tokens, sessions
and notifications. Shows what is erased, what others use of it and which backups still have it, and
asks for the name of the user before anything is deleted. Running operations are killed.
"""
EPILOG = """\
Exit codes: 0 done; 1 not done yet, run the same command again; 2 refused, nothing was changed.
Needs the database, the storages and the secret key of the installation. The certificate is signed,
kept in the database and printed. Entries of the audit log, which have the name, stay.
"""
SHARED = ("keep", "delete")


def erase(arguments: Sequence[str]) -> int:
    """Show what is erased, ask, erase and print the certificate. Raises CannotStart."""
    chosen = _parser().parse_args(arguments)
    environment.require(["erase", *arguments])
    os.umask(checks.umask())
    if chosen.verify is None:
        installation.require()
    installation.open_database()
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    errors = import_module("apps.erasure.errors")
    with installation.refusing(errors.ErasureProblem):
        if chosen.verify is not None:
            return _verify(chosen.verify)
        if chosen.list:
            return _list()
        if chosen.certificate is not None:
            return _certificate(chosen.certificate)
        return _erase(chosen, errors)


def _erase(chosen: argparse.Namespace, errors: Any) -> int:
    if not chosen.user:
        raise CannotStart(f"Name a user: {COMMAND} erase USER")
    plans, erasing = import_module("apps.erasure.plan"), import_module("apps.erasure.erasing")
    user, plan = erasing.found(chosen.user)
    # Of an account that was deleted meanwhile, the time of its creation is unknown.
    joined_at = datetime.min.replace(tzinfo=UTC) if user is None else user.date_joined
    backups = _backups(joined_at, chosen)
    _show(plan, backups, plans.active(user, plan).count())
    shared = erasing.Shared(chosen.shared) if chosen.shared else None
    erasing.require_possible(user, plan, shared)
    if chosen.preview:
        return 0
    _require_writable(chosen.out)
    _confirm(chosen)
    try:
        row = erasing.erase(chosen.user, shared=shared, backups=backups)
    except (errors.NotDone, OSError, import_module("django.db").DatabaseError) as problem:
        print(f"Not done yet: {problem}", file=sys.stderr)
        return 1
    except errors.ErasureProblem as problem:
        if not erasing.has_begun(chosen.user):
            raise
        print(f"Not done yet: {problem}", file=sys.stderr)
        return 1
    _export(row, chosen.out)
    return 0


def _export(row: Any, path: Path | None) -> None:
    """Write the certificate to a file; print it where there is none, or it cannot be written."""
    text = json.dumps(row.certificate, indent=2)
    if path is None:
        print(text)
        return
    try:
        path.write_text(text + "\n")
    except OSError as problem:  # the disk is full, for example
        print(text)
        print(
            f"Erased {row.username}. The certificate cannot be written to {path}: {problem}. "
            f"It is kept: {COMMAND} erase --certificate {row.pk}",
            file=sys.stderr,
        )
        return
    print(f"Erased {row.username}. The certificate {row.pk} is in {path}.")


def _require_writable(path: Path | None) -> None:
    """Raise CannotStart where a file cannot be written; an existing one stays as it is."""
    if path is None:
        return
    existed = path.exists()
    try:
        path.open("a").close()
        if not existed:
            path.unlink()
    except OSError as problem:
        raise CannotStart(f"Nothing was erased: --out {path}: {problem.strerror}.") from problem


def _confirm(chosen: argparse.Namespace) -> None:
    """Raise CannotStart unless the name of the user is repeated."""
    given = chosen.confirm
    if given is None and sys.stdin.isatty():
        given = input(f"Type {chosen.user} to erase all of this: ")
    if given != chosen.user:
        raise CannotStart(
            f"Nothing was erased: got {given or 'no confirmation'!r}; allowed: {chosen.user!r}, "
            f"typed here or as --confirm {chosen.user}"
        )


def _backups(joined_at: datetime, chosen: argparse.Namespace) -> list[Any]:
    found = import_module("apps.erasure.backups")
    stores, errors = import_module("apps.backups.store"), import_module("apps.backups.errors")
    given = [each if "://" in each else str(Path(each).resolve()) for each in chosen.backups]
    locations = list(dict.fromkeys([*found.known_locations(), *given]))
    with TemporaryDirectory() as workspace:

        def opened(location: str) -> Any:
            try:
                return stores.opened(location, None, Path(workspace))
            except errors.KeyProblem:
                return stores.opened(location, chosen.key, Path(workspace))

        return list(found.holding(joined_at, locations, opened))


def _show(plan: Any, backups: Sequence[Any], num_active: int) -> None:
    size_bytes = sum(each.checkpoint_bytes for each in plan.operations)
    checkpoints = sum(each.num_checkpoints for each in plan.operations)
    print("Erased:", file=sys.stderr)
    lines = [
        f"{len(plan.operations)} operations, of which {num_active} have not ended",
        f"{checkpoints} checkpoints, {size_bytes / 1e6:,.1f} MB",
        f"{len(plan.studies)} studies",
        f"{len(plan.datasets)} datasets: {', '.join(each.id for each in plan.datasets) or '-'}",
        *(f"{number} {what}" for what, number in plan.numbers.items() if number),
    ]
    for line in lines:
        print(f"  {line}", file=sys.stderr)
    for text in _staying(plan):
        print(text, file=sys.stderr)
    for each in backups:
        print(f"Backup: {each.location} {each.name}: deleted {each.expires}", file=sys.stderr)


def _staying(plan: Any) -> Iterator[str]:
    """Yield what others use, and what stays."""
    for each in plan.shared:
        yield f"Used by others: dataset {each.id}: {', '.join(each.used_by)}"
    yield from (
        f"Stays: dataset {each.id}, which others uploaded, too"
        for each in plan.datasets
        if each.num_other_owners
    )
    for what, ids in (
        (", of others, begun from these", plan.forks),
        (", of others, started with their weights", plan.warm_starts),
        (", of others, that used their models", plan.model_users),
        (", files in sinks of", plan.sink_files),
    ):
        if ids:
            yield f"Stay{what}: {', '.join(ids)}"
    for what, number in plan.kept.items():
        if number:
            yield f"Stay: {number} {what}"


def _list() -> int:
    erasures: Any = import_module("apps.installation.models").Erasure.objects
    for each in erasures.order_by("began_at"):
        state = f"finished {each.finished_at:%Y-%m-%d %H:%M}" if each.finished_at else "unfinished"
        print(f"{each.pk}  {each.username}  {state}")
    return 0


def _certificate(number: int) -> int:
    erasures: Any = import_module("apps.installation.models").Erasure.objects
    found = erasures.filter(pk=number).exclude(finished_at=None).first()
    if found is None:
        raise CannotStart(f"There is no certificate {number}; list them with --list.")
    print(json.dumps(found.certificate, indent=2))
    return 0


def _verify(path: Path) -> int:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise CannotStart(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CannotStart(f"{path} is not a certificate: got {type(content).__name__}")
    name = import_module("apps.erasure.certificates").signer_of(content)
    print(f"The certificate is genuine: signed by {name}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND} erase", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("user", nargs="?", default="", help="name of the user")
    parser.add_argument("--preview", action="store_true", help="show what is erased, erase nothing")
    parser.add_argument("--confirm", metavar="USER", help="the same name, instead of typing it")
    parser.add_argument(
        "--shared", choices=SHARED, help="datasets that operations of others use: keep or delete"
    )
    parser.add_argument(
        "--backups", action="append", default=[], metavar="PLACE",
        help="a further directory or bucket of backups to look into",
    )  # fmt: skip
    parser.add_argument("--key", type=Path, metavar="FILE", help="key of encrypted backups")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the certificate there")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the erasures")
    action.add_argument("--certificate", type=int, metavar="N", help="print a certificate")
    action.add_argument("--verify", type=Path, metavar="FILE", help="check a certificate")
    return parser
