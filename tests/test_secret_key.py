"""The keys that sign sessions: made once, several of them during a change."""

import threading

import pytest
from django.contrib.auth.models import Group, User

from trainops.secret_key import secret_keys

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("TRAINOPS_SECRET_KEY", "TRAINOPS_SECRET_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_key_is_made_once_and_private(tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(secret_keys(tmp_path / "var")))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8 and all(each == found[0] for each in found)
    assert len(found[0]) == 1 and len(found[0][0]) > 50
    assert (tmp_path / "var" / "secret_key").stat().st_mode & 0o077 == 0


def test_each_line_is_a_key_the_newest_first(tmp_path, monkeypatch):
    new, old = "n" * 40, "an old key " * 4
    (tmp_path / "secret_key").write_text(f"{new}\n\n {old}\n")
    assert secret_keys(tmp_path)[:2] == [new, old.strip()]
    monkeypatch.setenv("TRAINOPS_SECRET_KEY", "from here\n")
    assert secret_keys(tmp_path) == ["from here\n"]


@pytest.mark.parametrize("text", ["short", "k" * 64 + "\n" + "rest", "k" * 64 + "\n" + "l" * 64])
def test_what_was_a_key_in_earlier_versions_is_accepted(tmp_path, text):
    (tmp_path / "secret_key").write_text(f"{text}\n")
    assert text in secret_keys(tmp_path)


def test_a_file_without_a_key_is_refused_by_name(tmp_path):
    (tmp_path / "secret_key").write_text("\n")
    with pytest.raises(ValueError, match="secret_key has no key; allowed: a key in each line"):
        secret_keys(tmp_path)


@pytest.mark.django_db
def test_a_session_outlives_a_change_of_the_key_while_the_old_one_is_accepted(client, settings):
    user = User.objects.create_user("ana", password=PASSWORD)
    user.groups.add(Group.objects.get(name="viewer"))
    client.post("/login/", {"username": "ana", "password": PASSWORD})
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the new one", [settings.SECRET_KEY]
    assert client.get("/account/").status_code == 200  # signs the session again
    settings.SECRET_KEY_FALLBACKS = []
    assert client.get("/account/").status_code == 200
    settings.SECRET_KEY = "another one"
    assert client.get("/account/").status_code == 302
