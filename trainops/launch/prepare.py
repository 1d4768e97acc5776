"""What must be in the database before the programs start. Run as a process of its own:

    python -m trainops.launch.prepare [--check | --url URL --demo --take-over-storage] [--json]

Migrates, makes the roles and the first admin, writes the command line's token, submits the demos.
A process of its own, because `up` stays small and single-threaded and never imports Django.
"""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

import django
from django.core.management import call_command
from django.db import DatabaseError, connection
from pydantic import ValidationError

from trainops import statement_timeout
from trainops.client import server as command_line
from trainops.launch.prepared import Prepared
from trainops.launch.refusal import CannotStart

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from trainops.kind import Demo

DEMO_TAG = "demo"
LOCK = int.from_bytes(b"trainops")  # an advisory lock


def prepare(*, url: str = "", demo: bool = False, take_over_storage: bool = False) -> Prepared:
    """Bring the database up to date, and see that the storages are this installation's.

    Another process that prepares the same database waits meanwhile.

    Raises CannotStart where a newer program has changed the database, a bucket refuses, or a
    storage belongs to another installation. One that is away is a warning: it may be mounted a
    moment later.
    """
    _check_bucket()
    with _alone():
        return _prepared(url, demo=demo, take_over_storage=take_over_storage)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock of PostgreSQL. A file of SQLite is in a data directory, which has one `up`."""
    if connection.vendor != "postgresql":
        yield
        return
    with statement_timeout.unlimited(), connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = 0")
        cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        cursor.execute("RESET lock_timeout")
    try:
        yield
    finally:
        # Where the connection was lost, so was the lock.
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])


def _prepared(url: str, *, demo: bool, take_over_storage: bool) -> Prepared:
    done = Prepared(migrated=_migrate())
    from trainops.http import second_factor  # noqa: PLC0415 - models need django.setup()
    from trainops.http.roles import ensure_roles  # noqa: PLC0415 - see above

    ensure_roles()
    second_factor.encrypt_anew()  # the secret key may have been replaced
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    done.warnings += import_module("apps.checkpoints.signing_keys").enroll()
    done.warnings += _check_storages(take_over_storage)
    admin = _first_admin(done)
    if url:
        _write_token(admin, url)
    if demo:
        done.demo = _submit_demos(admin)
    return done


def _check_bucket() -> None:
    """Read the bucket of checkpoints before the database is changed.

    Raises CannotStart for wrong credentials, missing permissions and a missing bucket.
    """
    checkpoints = import_module("apps.checkpoints.place").here()
    remedies = import_module("apps.checkpoints.storage_remedies")
    try:
        checkpoints.read_id()
    except OSError as error:
        if remedies.cause_of(error) in remedies.OF_CONFIGURATION:
            raise CannotStart(
                f"The storage of checkpoints, {checkpoints.location}, cannot be used: {error}. "
                f"{remedies.remedy(error)}"
            ) from error


def _check_storages(take_over: bool) -> list[str]:
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    storages = import_module("apps.installation.storages")
    checkpoints = import_module("apps.checkpoints.place").here()
    datasets = import_module("apps.datasets.storage").PLACE
    if take_over:
        _require_no_worker_with_storage()
    warnings = []
    for place in (checkpoints, datasets):
        try:
            (storages.take_over if take_over else storages.require)(place)
        except storages.ForeignStorage as error:
            raise CannotStart(_sentence(error)) from error
        except OSError as error:
            warnings.append(_sentence(error))
    return warnings


def _require_no_worker_with_storage() -> None:
    """Raise CannotStart where workers run that can use their storage: they would lose it."""
    worker = import_module("apps.workers.models").Worker
    running = worker.objects.with_status().filter(storage_problem="", worker_type="celery")
    known = running.exclude(status__in=[worker.Status.GONE, worker.Status.TEMPORARILY_UNAVAILABLE])
    if names := sorted(known.values_list("worker_id", flat=True)):
        raise CannotStart(
            f"The storage is not taken over: {', '.join(names[:5])} can use the present one. "
            "Make that storage available to this machine, or stop these workers first."
        )


def _sentence(error: OSError) -> str:
    said = str(error)
    return said[:1].upper() + said[1:]


def require_current() -> None:
    """Raise CannotStart unless the database is what this program's version works with."""
    schema = _schema()
    try:
        schema.require_usable()
    except schema.WrongDatabase as error:
        raise CannotStart(str(error)) from error


def _migrate() -> int:
    """Apply what is missing; returns how many migrations that was."""
    schema = _schema()
    try:
        missing = len(schema.plan())
    except schema.WrongDatabase as error:
        raise CannotStart(str(error)) from error
    if missing:
        with statement_timeout.unlimited():
            call_command("migrate", interactive=False, verbosity=0)
    return missing


def _schema() -> Any:
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    return import_module("apps.installation.schema")


def _first_admin(done: Prepared) -> "User":
    """The first superuser there is, or a new one with a random password."""
    from django.contrib.auth.models import User  # noqa: PLC0415 - see prepare()

    if existing := User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first():
        done.admin = existing.username
        return existing
    names = ("admin" if n == 1 else f"admin{n}" for n in count(1))
    done.admin = next(n for n in names if not User.objects.filter(username=n).exists())
    given = os.environ.get("TRAINOPS_ADMIN_PASSWORD")
    password = given or secrets.token_urlsafe(12)
    done.password = "" if given else password
    return User.objects.create_superuser(done.admin, password=password)


def _write_token(admin: "User", url: str) -> None:
    """Let the command line of this machine work at once; a person's own log-in is left alone."""
    from knox.crypto import hash_token  # noqa: PLC0415 - see prepare()

    from trainops.http.models import Token  # noqa: PLC0415 - see prepare()

    found = _remembered()
    if found.url and found.url != url and not found.is_local:
        return
    if found.token and Token.objects.filter(digest=hash_token(found.token)).exists():
        token = found.token
    else:
        _, token = Token.objects.create(user=admin, expiry=None, name="command line, made by up")
    if (found.url, found.token) != (url, token):
        command_line.remember(command_line.ServerAddress(url, token))


def _remembered() -> command_line.ServerAddress:
    try:
        found = json.loads(command_line.cli_file().read_text())
        return command_line.ServerAddress(str(found["url"]), str(found["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return command_line.ServerAddress("")


def _submit_demos(admin: "User") -> str:
    """Submit a small operation of each kind, once; returns the id of the first."""
    from trainops.kind import KINDS  # noqa: PLC0415 - only for --demo
    from trainops.lazy import load  # noqa: PLC0415

    operations = import_module("apps.operations.models").Operation.objects
    keys = {f"demo-{kind.name}": kind for kind in KINDS.values() if kind.demo}
    made = operations.filter(owner=admin, idempotency_key__in=keys)
    if first := made.order_by("created_at").first():
        return str(first.pk)
    services = import_module("apps.operations.requests.services")
    ids = []
    for key, kind in keys.items():
        demo: Demo = load(kind.demo)
        operation = services.submit(
            kind=kind.name,
            name=demo.name,
            config=_with_data(demo, admin),
            owner=admin,
            tags=[DEMO_TAG],
            idempotency_key=key,
        )
        ids.append(str(operation.pk))
    return ids[0]


def _with_data(demo: "Demo", owner: "User") -> dict[str, object]:
    """Return the config of a demo, its table uploaded."""
    if demo.table is None:
        return dict(demo.config)
    dataset = import_module("apps.datasets.services").add_table(
        BytesIO(demo.table().encode()), filename=f"{DEMO_TAG}.csv", name=demo.name, owner=owner
    )
    return {**demo.config, "dataset": dataset.pk}


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trainops.launch.prepare")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check whether the database is up to date, and change nothing",
    )
    parser.add_argument("--url", default="", help="write the command-line token for this URL")
    parser.add_argument(
        "--demo", action="store_true", help="submit a small operation of each kind, once"
    )
    parser.add_argument(
        "--take-over-storage",
        action="store_true",
        help="take over the storages of another installation",
    )
    parser.add_argument("--json", action="store_true", help="print JSON to standard output")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Exit codes: 0 done, 2 refused (one line on standard error)."""
    options = _arguments(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trainops.settings")
    try:
        django.setup()
        if options.check:
            require_current()
            return 0
        done = prepare(
            url=options.url, demo=options.demo, take_over_storage=options.take_over_storage
        )
    except ValidationError as error:  # of the settings
        return _refuse("; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors()))
    except DatabaseError as error:
        return _refuse(f"The database is not usable: {str(error).strip().splitlines()[0]}")
    except CannotStart as error:
        return _refuse(str(error))
    if options.json:
        print(json.dumps(asdict(done)))
    else:
        print(f"{done.migrated} migrations applied; the admin is {done.admin}.")
        for warning in done.warnings:
            print(f"Warning: {warning}")
        if done.password:
            print(f"Password, shown only once: {done.password}")
    return 0


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
