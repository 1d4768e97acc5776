"""Compute and GPU hours of each week, as a table and as CSV."""

import csv

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from apps.dashboard.permissions import needs
from apps.operations.requests import access, shares
from apps.workers.usage import By, weekly_usage
from apps.workers.usage_api import UsageQuery
from trainops.text import csv_cell

BY = (("project", "By project"), ("owner", "By owner"), ("kind", "By kind"))
WEEKS = ((8, "8 weeks"), (26, "26 weeks"), (52, "52 weeks"), (104, "104 weeks"))
COLUMNS = ("week", "name", "num_attempts", "compute_hours", "gpu_hours")


@needs()
def usage(request: HttpRequest) -> HttpResponse:
    """Show the usage report; weeks without any are left out."""
    by, weeks = _asked(request.GET)
    context = {
        "rows": weekly_usage(by, weeks),
        "shares": shares.used(),
        "by": by,
        "weeks": weeks,
        "may_create": access.may_create(request.user),
        "choices": (("by", "Rows", BY, by), ("weeks", "Time", WEEKS, weeks)),
    }
    return render(request, "dashboard/workers/usage.html", context)


@needs()
def usage_file(request: HttpRequest) -> HttpResponse:
    """Return the same rows as CSV."""
    by, weeks = _asked(request.GET)
    name = f'attachment; filename="usage-by-{by}.csv"'
    answer = HttpResponse(
        content_type="text/csv; charset=utf-8", headers={"Content-Disposition": name}
    )
    lines = csv.writer(answer, lineterminator="\n")
    lines.writerow(COLUMNS)
    for each in weekly_usage(by, weeks):
        hours = each.compute_hours, each.gpu_hours
        lines.writerow([each.week, csv_cell(each.name), each.num_attempts, *hours])
    return answer


def _asked(given: QueryDict) -> tuple[By, int]:
    """Return the choices of an address; defaults for values that are not allowed."""
    asked = {name: given[name] for name in ("by", "weeks") if name in given}
    query = UsageQuery(data=asked)
    if not query.is_valid():
        query = UsageQuery(data={n: v for n, v in asked.items() if n not in query.errors})
        query.is_valid(raise_exception=True)
    return query.validated_data["by"], query.validated_data["weeks"]
