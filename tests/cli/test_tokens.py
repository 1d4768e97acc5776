import json
import time

import pyotp
import pytest

from trainops.client.problems import ExitCode
from trainops.http import second_factor
from trainops.http.models import Token


@pytest.fixture
def stranger(cli, monkeypatch):
    """The same shell without a token."""
    monkeypatch.delenv("TRAINOPS_TOKEN")
    monkeypatch.setenv("TRAINOPS_USERNAME", "ana")
    monkeypatch.setenv("TRAINOPS_PASSWORD", "correct horse")
    return cli


def test_a_token_is_made_with_the_one_there_is(cli):
    ran = cli("token", "--name", "ci", "--days", 30)
    assert ran.exit_code == ExitCode.OK
    made = Token.objects.get(name="ci")
    assert made.expiry is not None
    assert len(ran.stdout.splitlines()) == 1
    assert cli("ls", "--token", ran.stdout.strip()).exit_code == ExitCode.OK


def test_a_token_that_only_reads(cli):
    secret = cli("token", "--scope", "read").stdout.strip()
    assert cli("ls", "--token", secret).exit_code == ExitCode.OK
    refused = cli("token", "--token", secret)
    assert refused.exit_code == ExitCode.FAILED and "only reads" in refused.stderr


def test_a_token_is_made_with_name_and_password(stranger):
    made = stranger("token", "-o", "json").json
    assert stranger("ls", "--token", made["token"]).exit_code == ExitCode.OK


def test_a_wrong_password_makes_none(stranger, monkeypatch):
    monkeypatch.setenv("TRAINOPS_PASSWORD", "wrong")
    ran = stranger("token")
    assert ran.exit_code == ExitCode.FAILED
    assert "wrong password" in ran.stderr


def test_login_is_remembered_for_the_next_commands(stranger, environment, tmp_path, monkeypatch):
    assert stranger("ls").exit_code == ExitCode.FAILED
    ran = stranger("login")
    assert ran.exit_code == ExitCode.OK
    assert ran.stdout == ""
    path = tmp_path / "var" / "cli.json"
    assert json.loads(path.read_text())["url"] == environment["TRAINOPS_URL"]
    assert path.stat().st_mode & 0o077 == 0
    assert stranger("ls").exit_code == ExitCode.OK
    monkeypatch.delenv("TRAINOPS_URL")
    assert stranger("ls").exit_code == ExitCode.OK


def test_without_a_terminal_it_says_what_to_set(stranger, monkeypatch):
    monkeypatch.delenv("TRAINOPS_PASSWORD")
    ran = stranger("login")
    assert ran.exit_code == ExitCode.USAGE
    assert "TRAINOPS_PASSWORD" in ran.stderr


def test_a_revoked_token_is_reported_with_the_way_to_a_new_one(cli):
    Token.objects.all().delete()
    ran = cli("ls")
    assert ran.exit_code == ExitCode.FAILED
    assert "python3 -m trainops login" in ran.stderr


@pytest.fixture
def factor(ana):
    """The secret of ana's second factor, and recovery codes."""
    secret = second_factor.new_secret()
    code = pyotp.TOTP(secret).at(time.time(), counter_offset=-1)
    return secret, second_factor.set_up(ana, secret, code)


def test_the_code_of_a_second_factor_is_read_from_the_environment(stranger, factor, monkeypatch):
    refused = stranger("login")
    assert refused.exit_code == ExitCode.USAGE and "Set TRAINOPS_CODE" in refused.stderr
    monkeypatch.setenv("TRAINOPS_CODE", pyotp.TOTP(factor[0]).now())
    assert stranger("login").exit_code == ExitCode.OK
    used = stranger("login")
    assert used.exit_code == ExitCode.FAILED and "was used already" in used.stderr
    assert stranger("ls").exit_code == ExitCode.OK


def test_the_code_of_a_second_factor_is_asked_for_on_a_terminal(stranger, factor, monkeypatch):
    monkeypatch.setattr("trainops.cli.tokens.is_interactive", lambda: True)
    ran = stranger("login", input=f"{factor[1][0]}\n")
    assert ran.exit_code == ExitCode.OK
    assert "Code of the authenticator app" in ran.stderr
    assert stranger("ls").exit_code == ExitCode.OK
