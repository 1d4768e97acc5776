"""The page with the load of a worker's machine."""

import json
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.dashboard.load_curves import load_curves
from apps.workers.models import LoadSample, Worker

GPUS = [{"id": each, "name": "H100", "memory_bytes": 2**36} for each in "ba"]


@pytest.fixture
def samples(db):
    """Two samples, and a third after a pause."""
    Worker.objects.create(worker_id="w 1", capabilities={"gpus": GPUS}, host="tower")
    loads = [{"id": each, "percent": 10.0 * n, "memory_bytes": n} for n, each in enumerate("ab")]
    made = [
        LoadSample(worker_id="w 1", cpu_percent=n, memory_bytes=2**30 * n, gpus=loads[n % 2 :])
        for n in (1, 2, 3)
    ]
    for sample, minutes in zip(made, (20, 19, 0), strict=True):
        sample.at = timezone.now() - timedelta(minutes=minutes)
        sample.save()
    return made


def test_the_list_shows_the_latest_and_leads_to_the_curves(page, samples):
    text = page.get("/workers/").content.decode()
    assert "CPU 3 %, 3.22 GB in use" in text
    assert 'href="/workers/w%201/load"' in text


def test_the_page_has_the_curves_of_the_day(page, samples):
    LoadSample.objects.filter(pk=samples[0].pk).update(at=timezone.now() - timedelta(hours=25))
    text = page.get("/workers/w%201/load").content.decode()
    (found,) = re.findall(r'id="load-curves" type="application/json">(.*?)</script>', text)
    assert json.loads(found)["charts"]["load/cpu_percent"] == [
        {"label": "CPU", "values": [2.0, None, 3.0]}
    ]
    assert "tower" in text


def test_curves_are_interrupted_and_each_gpu_has_its_own(samples):
    found = load_curves(samples, GPUS)
    times = [each.at.timestamp() for each in samples]
    assert found["times"] == [*times[:2], sum(times[1:]) / 2, times[2]]
    assert found["charts"]["load/memory_bytes"][0]["values"] == [2**30, 2**31, None, 3 * 2**30]
    assert found["charts"]["load/gpu_percent"] == [
        {"label": "0: H100", "values": [10.0, 10.0, None, 10.0]},
        {"label": "1: H100", "values": [None, 0.0, None, None]},
    ]


@pytest.mark.parametrize("gpus", [[{"name": "of another kind"}], [None, 7], "two", {"id": "a"}])
def test_gpus_that_a_foreign_worker_describes_otherwise_are_no_error(page, samples, gpus):
    Worker.objects.update(capabilities={"gpus": gpus})
    for path in ("/workers/", "/workers/w%201/load"):
        assert page.get(path).status_code == 200


def test_a_worker_without_samples_says_so(page, db):
    Worker.objects.create(worker_id="w")
    assert "No sample yet" in page.get("/workers/w/load").content.decode()
    assert page.get("/workers/x/load").status_code == 404
