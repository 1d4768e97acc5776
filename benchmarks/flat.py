"""Rows that PostgreSQL reads for a request, with 100,000 and with 1,000,000 operations.

Requests of the list API and of pages, sweeps and looks for work, each with cold caches. A statement
is run once more by EXPLAIN ANALYZE, in a transaction that is rolled back, and the rows of its scans
are added up, those that a condition removed included. What is flat reads as many in both.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.filled import fill, on_postgresql, set_up

SIZES = (100_000, 1_000_000)
EXPLAINED = ("SELECT", "UPDATE", "DELETE", "WITH")
NO_TABLE = ("Subquery Scan", "CTE Scan", "Function Scan", "Values Scan")
FURTHER = (
    "/?tab=attention", "/?group=state", "/checkpoints/", "/studies/", "/workers/", "/datasets/",
    "/operations/new", "/metrics",
)  # fmt: skip


def main() -> dict[str, dict[str, list[float]]]:
    """Print a table; return (rows, milliseconds of the database) by case and size."""
    found: dict[str, dict[str, list[float]]] = on_postgresql("benchmarks.flat", {})
    print(f"\n{'':28}" + "".join(f"{f'rows of {size:,}':>22}{'ms':>9}" for size in SIZES))
    for case, by_size in found.items():
        figures = "".join(f"{rows:22,.0f}{ms:9.1f}" for rows, ms in by_size.values())
        print(f"{case:28}{figures}")
    return found


def measure() -> dict[str, dict[str, tuple[float, float]]]:
    """Fill this process's database to each size in turn, and look at every case."""
    set_up()
    found: dict[str, dict[str, tuple[float, float]]] = {}
    before = 0
    for size in SIZES:
        fill(size - before, first=before)
        before = size
        for case, act in _cases(size).items():
            found.setdefault(case, {})[str(size)] = _read_by(act)
    return found


def _cases(size: int) -> dict[str, Callable[[], object]]:
    from django.contrib.auth.models import User
    from django.test import Client

    from apps.operations.models import Operation
    from apps.operations.scheduling import claims
    from apps.workers import maintenance
    from benchmarks.duties import OFFER
    from benchmarks.lists import CASES
    from benchmarks.pages import PAGES

    middle = Operation.objects.get(name=f"operation number {size // 2}")
    twelve = Operation.objects.order_by("pk").values_list("pk", flat=True)[:12]
    places = {
        "one": middle.pk,
        "middle": middle.created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "twelve": ",".join(twelve),
    }
    client = Client()
    client.force_login(User.objects.get(username="bench"))

    def get(address: str) -> None:
        response = client.get(address)
        if response.status_code != 200:
            raise RuntimeError(f"{address}: {response.status_code}")

    pages = {name: address for name, address in PAGES.items() if "{long}" not in address}
    addresses = {
        **{f"API: {name}": address for name, address in CASES.items()},
        **{f"page: {name}": address for name, address in pages.items()},
        **{f"page: {address}": address for address in FURTHER},
    }
    cases: dict[str, Callable[[], object]] = {
        name: lambda address=address: get(address.format(**places))  # type: ignore[misc]
        for name, address in addresses.items()
    }
    cases["sweep"] = lambda: maintenance.sweep(actor="bench")
    cases["look for work"] = lambda: claims.claim(worker_id="a@b", host="b", offer=OFFER)
    return cases


def _read_by(act: Callable[[], object]) -> tuple[float, float]:
    """Return how many rows the statements of an action read, and their milliseconds."""
    from django.core.cache import cache
    from django.db import connection

    plans: list[dict[str, Any]] = []

    def explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not many and sql.startswith(EXPLAINED):
            plans.append(_plan(sql, params))
        return execute(sql, params, many, context)

    cache.clear()
    with connection.execute_wrapper(explained):
        act()
    rows = sum(sum(_rows(each["Plan"])) for each in plans)
    return rows, round(sum(each["Execution Time"] for each in plans), 1)


def _plan(sql: str, params: Any) -> dict[str, Any]:
    from django.db import connection

    is_inside = connection.in_atomic_block
    raw: Any = connection.connection
    with raw.cursor() as cursor:
        cursor.execute("SAVEPOINT explained" if is_inside else "BEGIN")
        try:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
            plan: dict[str, Any] = cursor.fetchone()[0][0]
        finally:
            cursor.execute("ROLLBACK TO SAVEPOINT explained" if is_inside else "ROLLBACK")
    return plan


def _rows(node: dict[str, Any]) -> Iterator[float]:
    """Yield the rows of each scan of a table or an index."""
    if "Scan" in node["Node Type"] and node["Node Type"] not in NO_TABLE:
        removed = node.get("Rows Removed by Filter", 0) + node.get(
            "Rows Removed by Index Recheck", 0
        )
        yield (node["Actual Rows"] + removed) * node["Actual Loops"]
    for each in node.get("Plans", []):
        yield from _rows(each)


if __name__ == "__main__":
    print(json.dumps(measure()))
