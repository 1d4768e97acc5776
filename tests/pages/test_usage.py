"""The page of the usage report, and its file."""

from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from apps.operations.models import Share
from apps.operations.models.compute_time import Period
from apps.operations.requests import shares
from tests.pages import making


@pytest.fixture
def used(ana):
    operation = making.operation(ana, "COMPLETED")
    operation.row.update(project="=vision")
    making.attempt(operation)
    now = timezone.now()
    operation.attempts.update(started_at=now - timedelta(minutes=90), ended_at=now)


def test_the_hours_are_shown_by_project_or_owner(page, ana, used):
    text = page.get("/workers/usage").content.decode()
    assert "=vision" in text and '<th scope="col">Project</th>' in text
    assert '/workers/usage.csv?by=project&amp;weeks=8"' in text
    text = page.get("/workers/usage?by=owner&weeks=26").content.decode()
    assert '<td data-label="Owner">ana</td>' in text
    assert '<option value="26" selected>26 weeks</option>' in text


def test_shares_are_shown_with_what_is_used_of_them(page, ana):
    assert 'data-testid="shares"' not in page.get("/workers/usage").content.decode()
    making.attempt(making.operation(ana, "RUNNING", project="vision"))
    Share.objects.create(owner=ana, max_slots=4, weight=2)
    shares.save(Share(project="vision", gpu_hours_per_week=10), [ana])
    Share.objects.create(project="text")
    text = page.get("/workers/usage").content.decode()
    shown = " ".join(strip_tags(text.partition('data-testid="shares"')[2]).split())
    assert (
        "ana 2 1 of 4 0 0 project text every user 1 0 0 0 project vision ana 1 1 0 0 of 10" in shown
    )


def test_budgets_are_shown_with_what_is_used_of_them_and_their_end(page, ana):
    Share.objects.create(owner=ana, budget_gpu_hours=20, budget_compute_hours=1.5)
    Share.objects.create(
        project="vision", budget_gpu_hours=8, budget_period="total", preemptible=False
    )
    text = page.get("/workers/usage").content.decode()
    shown = " ".join(strip_tags(text.partition('data-testid="shares"')[2]).split())
    _, end = Period.WEEK.bounds(timezone.now())
    assert f"0 of 20 GPU hours 0 of 1.5 compute hours until {end:%Y-%m-%d} (UTC)" in shown
    assert "project vision not preemptible every user" in shown
    assert "0 of 8 GPU hours in total" in shown


def test_wrong_choices_are_replaced_by_defaults(page, ana, used):
    text = page.get("/workers/usage?by=color&weeks=26").content.decode()
    assert '<th scope="col">Project</th>' in text
    assert '<option value="26" selected>' in text


def test_the_file_has_the_rows_without_formulas(page, ana, used):
    answer = page.get("/workers/usage.csv?by=project")
    assert answer["Content-Disposition"] == 'attachment; filename="usage-by-project.csv"'
    head, *rows = answer.content.decode().splitlines()
    assert head == "week,name,num_attempts,compute_hours,gpu_hours"
    assert all(",'=vision,1," in each for each in rows)
    assert sum(float(each.split(",")[3]) for each in rows) == pytest.approx(1.5, abs=0.01)


def test_without_attempts_the_page_says_so(page, ana):
    assert "Nothing was computed" in page.get("/workers/usage").content.decode()
