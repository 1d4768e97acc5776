"""A directory is read by a confined process."""

import pytest

from apps.datasets.directories import registration
from trainops.datasets.sampling import Sample

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_a_confined_process_registers_and_verifies(settings, tmp_path):
    settings.DATASET_ROOTS = (tmp_path,)
    root = tmp_path / "digits"
    for label in "01":
        (root / label).mkdir(parents=True)
        (root / label / "a.png").write_bytes(b"not an image, and never decoded")
    dataset, _ = registration.add_or_find(str(root))
    assert dataset.layout["classes"] == [{"name": "0", "count": 1}, {"name": "1", "count": 1}]
    assert registration.verify(dataset.pk)["problems"] == []
    (root / "1" / "a.png").unlink()
    found = registration.verify(dataset.pk, Sample(2**63 - 1, num_files=2))
    assert found["problems"] == ["1/a.png is missing"]
    assert (found["num_files_read"], found["seed"]) == (1, 2**63 - 1)
