"""`doctor`: each misconfiguration is found, with what to do about it."""

import errno
import json
import os
import subprocess
import time
from datetime import timedelta

import pyotp
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from apps.checkpoints import place, signing_keys
from apps.datasets import storage as dataset_files
from apps.notifications.models import Delivery, Rule
from apps.operations.models import Event, Subscription
from apps.operations.scheduling import readiness
from apps.workers import clock_skew, diagnosis, registry
from apps.workers.diagnosis import machine, people, sign_in, stores, web, workers
from apps.workers.diagnosis.findings import Diagnosis, Level
from apps.workers.models import Worker
from tests.identity import conftest as identity
from tests.journey.stack import PROGRAM, ROOT
from tests.operations import rows
from trainops.clock import seconds_from_now
from trainops.http import second_factor
from trainops.sign_in_settings import Requirement
from trainops.version import VERSION

pytestmark = pytest.mark.django_db


def levels(check):
    found = list(check())
    for each in found:
        assert bool(each.remedy) == (each.level is not Level.OK), each
        assert each.message
    text = " ".join(f"{each.message} {each.remedy}" for each in found)
    return [each.level for each in found], text


def ok(check):
    found, text = levels(check)
    assert {*found} == {Level.OK}, text
    return text


def problem(check, level=Level.PROBLEM):
    found, text = levels(check)
    assert level in found, text
    return text


def warning(check):
    return problem(check, Level.WARNING)


def test_database_and_migrations(monkeypatch):
    assert "answers in" in ok(stores.database)
    assert ok(stores.migrations) == "all migrations are applied "
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE name = '0007_dataset_problem'")
        assert "1 migrations are missing" in problem(stores.migrations)
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES "
            "('workers', '0007_dataset_problem', '2026-01-01'), "
            "('workers', '9999_contract_a', '2026-01-01')"
        )
    assert "newer trainops (workers.9999_contract_a)" in problem(stores.migrations)


def test_a_database_that_is_away_leaves_out_what_rests_on_it():
    def away():
        yield Diagnosis.problem("away", "start it")

    checks = {**diagnosis.CHECKS, "database": away}
    made = {each.check for each in diagnosis.diagnose(checks)}
    assert not made & diagnosis.NEEDS_DATABASE
    assert {"database", "disk space", "file limits"} <= made


def test_a_check_that_fails_does_not_hide_the_others():
    def broken():
        raise RuntimeError("a bug")

    found = list(diagnosis.diagnose({"a": broken, "b": lambda: [Diagnosis.ok("fine")]}))
    assert [each.finding.level for each in found] == [Level.PROBLEM, Level.OK]
    assert "RuntimeError: a bug" in found[0].finding.message


def test_the_broker(settings):
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    assert "TRAINOPS_BROKER_URL" in problem(stores.broker)


def test_the_storage(settings, tmp_path):
    place.require()
    assert str(settings.CHECKPOINT_ROOT) in ok(stores.storage)
    settings.CHECKPOINT_ROOT = tmp_path / "another"
    assert "TRAINOPS_CHECKPOINT_STORAGE" in problem(stores.storage)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EROFS, "read-only"), "Mount the file system for writing"),
        (OSError(errno.ENOSPC, "full"), "Add space, raise the quota"),
        (OSError(errno.EDQUOT, "quota"), "Add space, raise the quota"),
        (PermissionError(errno.EACCES, "denied"), "writable for the user that runs trainops"),
        (FileNotFoundError(errno.ENOENT, "none"), "Create or mount the directory"),
        (OSError(errno.ESTALE, "stale"), "does not respond"),
    ],
)
@pytest.mark.parametrize("module", [readiness, dataset_files])
def test_a_storage_that_cannot_be_written_has_the_remedy_of_its_error(
    monkeypatch, module, error, words
):
    def refuse(**_):
        raise error

    place.require()
    ok(stores.storage)
    if module is readiness:
        monkeypatch.setattr(readiness.tempfile, "TemporaryFile", refuse)
    else:
        monkeypatch.setattr(dataset_files, "TemporaryFile", refuse)
    assert words in problem(stores.storage)


def test_a_worker_with_another_secret_key(settings):
    registry.register(
        worker_id="w", host="far", capabilities={"signing_key": signing_keys.own_key()}
    )
    ok(workers.registered)
    settings.SECRET_KEY = "another" * 10
    text = problem(workers.registered)
    assert "w has another secret key than this machine" in text and "secret_key of" in text
    assert settings.SECRET_KEY not in text
    Worker.objects.update(worker_type="custom", asked_at=timezone.now())  # has no secret key
    ok(workers.registered)


def test_a_worker_with_a_former_secret_key_is_a_warning_during_a_replacement(settings):
    settings.SECRET_KEY_FALLBACKS = []
    registry.register(
        worker_id="w", host="far", capabilities={"signing_key": signing_keys.own_key()}
    )
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new" * 20, [settings.SECRET_KEY]
    text = warning(workers.registered)
    assert "w still uses a former secret key" in text
    assert "Give far the new secret key, and restart the worker" in text


def test_a_worker_with_a_data_directory_of_its_own_is_a_warning():
    registry.register(worker_id="w")
    Worker.objects.filter(pk="w").update(dataset_problem="has no identity file")
    assert "leaves operations that use some to other workers: has no" in warning(workers.registered)


def test_one_sqlite_file_on_several_hosts():
    place.require()
    for host in ("a", "b"):
        registry.register(worker_id=host, host=host)
    check = problem if connection.vendor == "sqlite" else ok
    text = check(stores.storage)
    assert ("2 hosts use one SQLite file (a, b)" in text) == (connection.vendor == "sqlite")


def test_disks(settings):
    ok(machine.disk_space)
    update = {"checkpoint_reserve_bytes": 2**62}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=update)
    assert "checkpoints gc" in problem(machine.disk_space)


def test_limits_of_files_and_of_the_length_of_tmpdir(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (256, 1024))
    assert "LimitNOFILE" in warning(machine.file_limits)
    long = tmp_path / ("x" * 50)
    long.mkdir()
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: str(long))
    assert "Set TMPDIR" in warning(machine.temporary_files)


@pytest.mark.parametrize(
    ("torch", "level", "words"),
    [
        (("", False), Level.PROBLEM, "is a CPU build, but this machine has 1 x H100"),
        (("12.8", False), Level.PROBLEM, "CUDA 12.8 finds no GPU; the driver 550.1 has H100"),
        (("12.8", True), Level.OK, "1 x H100, torch with CUDA 12.8"),
    ],
)
def test_torch_and_the_driver(monkeypatch, torch, level, words):
    gpu = {"id": "GPU-1", "name": "H100", "memory_bytes": 80 * 10**9, "driver": "550.1"}
    monkeypatch.setattr(machine.inventory, "capabilities", lambda: {"gpus": [gpu]})
    (found,) = machine.cuda(lambda: torch)
    assert found.level is level and words in found.message


@pytest.mark.slow
def test_torch_is_asked_in_a_process_of_its_own():
    build, is_available = machine.torch_cuda()
    assert isinstance(build, str) and isinstance(is_available, bool)


def test_clocks_of_all_machines():
    Subscription.objects.get_or_create(pk="any")
    assert "1 clocks differ" in ok(workers.clocks)
    began_at = time.monotonic()
    skew = clock_skew.seconds(lambda: timezone.now().timestamp() + 90)
    assert abs(skew - 90) <= time.monotonic() - began_at + 0.1  # rounding
    registry.register(worker_id="w", host="far", capabilities={"clock_skew_seconds": -7.5})
    assert "the clock of far is 7.5 s behind the database's" in warning(workers.clocks)


def test_workers():
    assert "python3 -m trainops up" in warning(workers.registered)
    registry.register(worker_id="w", capabilities={"trainops": VERSION})
    ok(workers.registered)
    registry.register(worker_id="w", kinds=["training"])
    assert "no worker serves: backtest" in warning(workers.registered)
    registry.register(worker_id="v", capabilities={"trainops": "0.0.1"})
    assert f"v runs trainops 0.0.1, this is {VERSION}" in problem(workers.registered)
    Worker.objects.filter(pk="v").update(storage_problem="not mounted", last_error="it broke")
    text = problem(workers.registered)
    assert "cannot use the checkpoint storage: not mounted" in text and "it broke" in text
    registry.drain(worker_id="v", reason="by ada")
    Worker.objects.filter(pk="w").update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    text = warning(workers.registered)
    assert "workers undrain v" in text and "w sends no heartbeat" in text


def test_background_work():
    ok(workers.background_work)
    operation = rows.claimed()
    operation.row.update(lease_expires_at=seconds_from_now(-30))
    assert "1 operations have expired leases" in problem(workers.background_work)
    Event.objects.update(at=timezone.now() - timedelta(hours=1))
    Subscription.objects.update_or_create(pk="slow", defaults={"cursor": 0})
    assert "events reach slow 3600 s late" in warning(workers.background_work)


def test_settings_of_web(settings):
    settings.ALLOWED_HOSTS, settings.PUBLIC_URL = [".example.org"], ""
    ok(web.settings_of_web)
    settings.PUBLIC_URL = "https://train.example.org"
    assert "TRAINOPS_BEHIND_HTTPS_PROXY=1" in problem(web.settings_of_web)
    settings.BEHIND_HTTPS_PROXY = True
    ok(web.settings_of_web)
    settings.PUBLIC_URL = "http://other.org"
    text = problem(web.settings_of_web)
    assert "Add other.org to TRAINOPS_ALLOWED_HOSTS" in text and "is an http address" in text
    settings.DEBUG, settings.ALLOWED_HOSTS = True, ["*"]
    text = warning(web.settings_of_web)
    assert "TRAINOPS_DEBUG" in text and "every host name" in text


def test_the_data_directory_is_private(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    tmp_path.chmod(0o700)
    ok(web.data_directory)
    tmp_path.chmod(0o711)  # PostgreSQL's user passes; it cannot list
    ok(web.data_directory)
    tmp_path.chmod(0o755)
    assert f"chmod o= {tmp_path}" in problem(web.data_directory)


def test_notifications(settings, django_user_model):
    ana = django_user_model.objects.create_user("ana")
    settings.EMAIL_HOST, settings.PUBLIC_URL = "", "https://train.example.org"
    ok(people.notifications)
    rule = Rule.objects.create(owner=ana, channel=Rule.Channel.MAIL, target="ana@example.org")
    assert "TRAINOPS_MAIL_URL" in problem(people.notifications)
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.PUBLIC_URL = "127.0.0.1", 1, ""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    text = problem(people.notifications)
    assert "the mail server 127.0.0.1:1 refuses" in text and "TRAINOPS_PUBLIC_URL" in text
    Delivery.objects.create(
        rule=rule, what="FAILED", body={}, status=Delivery.Status.GIVEN_UP, error="410 Gone"
    )
    assert "the latest with: 410 Gone" in problem(people.notifications)


@pytest.mark.slow
def test_the_command_checks_an_installation_and_says_what_to_do(tmp_path):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("TRAINOPS_", "DJANGO_"))}  # fmt: skip

    def run(*arguments, **given):
        command = [*PROGRAM, "doctor", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment | given, capture_output=True, text=True, check=False
        )

    missing = run("--data-dir", str(tmp_path))
    assert (missing.returncode, "no installation in" in missing.stderr) == (2, True)
    tmp_path.chmod(0o700)
    (tmp_path / "trainops.sqlite3").touch(0o600)
    done = run("--data-dir", str(tmp_path), "-o", "json")
    assert done.returncode == 1, done.stderr
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert "migrations are missing" in found["migrations"]["message"]
    assert found["broker"]["level"] == "problem"
    assert found["data directory"]["level"] == "ok"
    assert "workers" not in found  # without tables there is nothing to ask
    text = run("--data-dir", str(tmp_path))
    assert "PROBLEM  migrations" in text.stdout and "-> Start this version" in text.stdout
    refused = run("--data-dir", str(tmp_path), TRAINOPS_LOG_FORMAT="xml")
    assert (refused.returncode, "is 'xml'; allowed" in refused.stderr) == (2, True)


def test_second_factors(settings):
    user = User.objects.create_superuser("root", password="correct horse")
    assert "0 accounts have a second factor" in ok(sign_in.second_factors)
    settings.SECOND_FACTOR = Requirement.ADMINS
    assert "superusers without a second factor" in warning(sign_in.second_factors)
    secret = second_factor.new_secret()
    second_factor.set_up(user, secret, pyotp.TOTP(secret).now())
    assert "1 accounts have" in ok(sign_in.second_factors)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 50, [settings.SECRET_KEY]
    assert "an older secret key" in warning(sign_in.second_factors)
    settings.SECRET_KEY_FALLBACKS = []
    assert "no present secret key" in problem(sign_in.second_factors)


def test_the_provider_of_sign_ins(settings):
    settings.OIDC = None
    assert "no provider is configured" in ok(sign_in.provider)
    provider = identity.start()
    try:
        identity.configure(settings, provider)
        assert "answers" in ok(sign_in.provider)
        provider.control(
            metadata={"code_challenge_methods_supported": ["plain"], "claims_supported": ["sub"]}
        )
        identity.configure(settings, provider, SCOPES="openid groups")
        found = warning(sign_in.provider)
        assert "not by S256" in found and "scopes groups" in found and "claim groups" in found
        identity.change(settings, roles=())
        assert "have no role until" in warning(sign_in.provider)
        provider.control(answers={"/jwks": [200, "{}"]})
        assert "no usable key" in problem(sign_in.provider)
        identity.change(settings, networks=())
        assert "TRAINOPS_OIDC_PRIVATE_ADDRESSES" in problem(sign_in.provider)
    finally:
        identity.stop(provider)
    identity.configure(settings, provider)
    assert "cannot be used: http" in problem(sign_in.provider)
