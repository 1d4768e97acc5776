"""Backups of checkpoints that are in a bucket: downloaded once, and not kept on the disk."""

import pytest

from apps.backups import making, snapshots
from apps.backups.store import opened
from apps.checkpoints import place, storage
from apps.operations.lifecycle import State
from tests.checkpoints.test_remote import uploaded
from tests.operations.rows import in_state

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_a_backup_downloads_what_no_earlier_one_has_and_leaves_no_copies(
    store, s3_proxy, machine, tmp_path
):
    rows = [uploaded(in_state(State.CANCELLED)) for _ in range(2)]
    place.require()
    machine("the machine of the backups")
    backups = opened(str(tmp_path / "backups"), None, tmp_path)
    made = making.make(backups).snapshot
    assert made.losses == [] and made.checkpoints.keys() == {each.artifacts_path for each in rows}
    assert list(snapshots.problems(backups, snapshots.find(backups))) == []
    assert not list(storage.stored()) and not list(storage.drafts())
    s3_proxy.seen.clear()
    again = making.make(backups).snapshot
    assert again.files == made.files
    assert not [path for method, path in s3_proxy.seen if method == "GET" and "model.pt" in path]
    store.lose(rows[0], "manifest.json")
    (loss,) = making.make(backups).snapshot.losses
    assert (loss.what, "manifest.json" in loss.why) == (rows[0].artifacts_path, True)
