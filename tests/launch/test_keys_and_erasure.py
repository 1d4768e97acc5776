"""`signing-keys` and `erase` as commands: what they print, ask and refuse."""

import json
import os
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from apps.checkpoints import signatures, storage
from apps.checkpoints import signing_keys as keys
from apps.checkpoints.models import Checkpoint
from apps.datasets.models import Dataset
from apps.erasure import erasing
from apps.installation.models import Erasure
from apps.operations.lifecycle import State
from apps.operations.models import DatasetUse, Operation
from tests.api.saved import saved
from tests.operations import rows
from trainops.launch import checks
from trainops.launch.erase import erase
from trainops.launch.refusal import CannotStart
from trainops.launch.signing_keys import signing_keys

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _umask(monkeypatch):
    mask = os.umask(0)
    os.umask(mask)
    monkeypatch.setattr(checks, "umask", lambda: mask)


@pytest.fixture(autouse=True)
def _data_dir(settings, monkeypatch):
    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(settings.DATA_DIR))


class TestSigningKeys:
    def test_a_copied_checkpoint_is_verified(self, capsys, settings):
        keys.enroll()
        checkpoint = saved(rows.submitted())
        copy = storage.directory(checkpoint.artifacts_path)
        signatures.write(checkpoint.artifacts_path, checkpoint.manifest_digest)
        assert signing_keys(["verify", str(copy)]) == 0
        assert "signed by this installation; its files are whole" in capsys.readouterr().out
        (copy / storage.SIGNATURE).unlink()
        assert signing_keys(["verify", str(copy)]) == 1
        assert "not signed" in capsys.readouterr().out
        (copy / "model.pt").write_bytes(b"other")
        assert signing_keys(["verify", str(copy)]) == 1
        assert "altered: model.pt" in capsys.readouterr().err

    def test_keys_are_listed_accepted_and_removed(self, capsys):
        keys.enroll()
        assert signing_keys([]) == 0
        assert f"{keys.own_key()}  this installation  (signs)" in capsys.readouterr().out
        assert signing_keys(["trust", KEY, "--name", "the lab"]) == 0
        assert f"{KEY}  the lab\n" in capsys.readouterr().out
        assert signing_keys(["distrust", KEY[:8]]) == 0
        said = capsys.readouterr().out
        assert f"The signatures of the lab ({KEY}) are no longer accepted." in said

    def test_what_is_refused_changes_nothing(self):
        keys.enroll()
        with pytest.raises(CannotStart, match="64 hexadecimal digits"):
            signing_keys(["trust", "abc", "--name", "x"])
        with pytest.raises(CannotStart, match="0 keys begin with 'abc'"):
            signing_keys(["distrust", "abc"])
        assert list(keys.accepted()) == [keys.own_key()]

    def test_a_key_that_replaces_a_lost_one_is_recorded_by_the_command(self, settings, capsys):
        keys.enroll()
        former = keys.own_key()
        settings.SECRET_KEY = "another secret key " * 3
        assert signing_keys([]) == 0
        said = capsys.readouterr()
        assert f"{former}  this installation  (not accepted" in said.out
        assert "(signs)" not in said.out and "signs nothing: signing-keys enroll" in said.err
        assert signing_keys(["enroll"]) == 0
        assert f"{keys.own_key()}  this installation  (signs)" in capsys.readouterr().out
        assert signing_keys(["trust", former, "--name", "before the fire"]) == 0
        assert f"{former}  before the fire\n" in capsys.readouterr().out

    def test_older_checkpoints_are_signed_and_damaged_ones_are_named(self, capsys):
        older = saved(rows.in_state(State.CANCELLED))
        with pytest.raises(CannotStart, match="not in the list"):
            signing_keys(["sign"])
        keys.enroll()
        assert signing_keys(["sign"]) == 0
        assert "Signed 1 checkpoints." in capsys.readouterr().out
        forged = f"{keys.own_key()}:{'0' * 128}"
        Checkpoint.objects.filter(pk=older.pk).update(signature=forged)
        assert signing_keys(["sign"]) == 1
        assert f"not signed: {older.pk}: " in capsys.readouterr().err


class TestErase:
    @pytest.fixture(autouse=True)
    def ben(self):
        User.objects.create_superuser("ada")
        ben = User.objects.create_user("ben")
        saved(rows.in_state(State.CANCELLED, ben))
        return ben

    def test_the_preview_erases_nothing(self, capsys):
        assert erase(["ben", "--preview"]) == 0
        said = capsys.readouterr().err
        assert "1 operations, of which 0 have not ended" in said and "1 checkpoints" in said
        assert Operation.objects.exists() and not Erasure.objects.exists()

    @pytest.mark.parametrize("given", [[], ["--confirm", "Ben"]])
    def test_without_the_name_nothing_is_erased(self, given, monkeypatch):
        monkeypatch.setattr("sys.stdin", StringIO())  # no terminal
        with pytest.raises(CannotStart, match=r"Nothing was erased.*allowed: 'ben'"):
            erase(["ben", *given])
        assert User.objects.get(username="ben").is_active

    def test_the_certificate_is_written_listed_printed_and_verified(self, tmp_path, capsys):
        path = tmp_path / "ben.json"
        assert erase(["ben", "--confirm", "ben", "--out", str(path)]) == 0
        certificate = json.loads(path.read_text())
        assert certificate["user"] == "ben"
        capsys.readouterr()
        assert erase(["--list"]) == 0
        number = capsys.readouterr().out.split()[0]
        assert erase(["--certificate", number]) == 0
        assert json.loads(capsys.readouterr().out) == certificate
        assert erase(["--verify", str(path)]) == 0
        assert "genuine: signed by this installation" in capsys.readouterr().out
        path.write_text(json.dumps({**certificate, "user": "zoe"}))
        with pytest.raises(CannotStart, match="was altered"):
            erase(["--verify", str(path)])

    def test_a_file_that_cannot_be_written_is_refused_before(self, tmp_path):
        for path in (tmp_path, tmp_path / "none" / "ben.json"):
            with pytest.raises(CannotStart, match="Nothing was erased: --out"):
                erase(["ben", "--confirm", "ben", "--out", str(path)])
        kept, new = tmp_path / "kept.json", tmp_path / "new.json"
        kept.write_text("earlier")
        for path in (kept, new):
            with pytest.raises(CannotStart, match="allowed: 'ben'"):
                erase(["ben", "--confirm", "Ben", "--out", str(path)])
        assert kept.read_text() == "earlier" and not new.exists()
        assert User.objects.get(username="ben").is_active and not Erasure.objects.exists()

    def test_a_certificate_that_cannot_be_written_any_more_is_printed(
        self, tmp_path, capsys, monkeypatch
    ):
        path, finish = tmp_path / "new" / "ben.json", erasing.erase
        path.parent.mkdir()

        def erase_and_unmount(*arguments, **named):
            path.parent.rmdir()
            return finish(*arguments, **named)

        monkeypatch.setattr(erasing, "erase", erase_and_unmount)
        assert erase(["ben", "--confirm", "ben", "--out", str(path)]) == 0
        said = capsys.readouterr()
        row = Erasure.objects.get()
        assert json.loads(said.out) == row.certificate
        assert f"erase --certificate {row.pk}" in said.err

    def test_what_is_not_there_is_named(self, tmp_path):
        for arguments, problem in (
            (["zoe"], "no user 'zoe'"),
            ([], "Name a user"),
            (["--certificate", "99"], "no certificate 99"),
            (["--verify", str(tmp_path / "none")], "No such file"),
        ):
            with pytest.raises(CannotStart, match=problem):
                erase(arguments)

    def test_what_runs_is_not_done_yet(self, ben, monkeypatch, capsys):
        monkeypatch.setattr("apps.erasure.erasing.STOP_SECONDS", 0.0)
        running = rows.in_state(State.RUNNING, ben)
        assert erase(["ben", "--confirm", "ben"]) == 1
        assert f"still ending: {running.pk}" in capsys.readouterr().err

    def test_what_the_database_refuses_in_between_is_not_done_yet(self, monkeypatch, capsys):
        def locked(*arguments):
            raise OperationalError("database is locked")

        monkeypatch.setattr("apps.erasure.erasing._erase_operations", locked)
        assert erase(["ben", "--confirm", "ben"]) == 1
        assert "Not done yet: database is locked" in capsys.readouterr().err

    def test_shared_datasets_are_shown(self, ben, capsys):
        others = rows.in_state(State.CANCELLED, User.objects.create_user("cleo"))
        Dataset.objects.create(
            id="ds_1", digest="0" * 64, source_digest="0" * 64, name="d", owner=ben, format="csv",
            num_rows=1, num_columns=1, columns=[], preview=[], source_bytes=1, size_bytes=1,
        )  # fmt: skip
        DatasetUse.objects.create(operation=others, dataset_id="ds_1")
        with pytest.raises(CannotStart, match="--shared keep"):
            erase(["ben", "--preview"])
        assert f"Used by others: dataset ds_1: {others.pk}" in capsys.readouterr().err
        assert erase(["ben", "--preview", "--shared", "keep"]) == 0
