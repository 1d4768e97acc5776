"""Pages with 100,000 operations and 8 users, on SQLite and on PostgreSQL.

The pages come from the web server as browsers ask for them, compressed. Each user looks at a page
for a second before the next; and, as much as the server can do, without a pause. Every listed
operation has two measured values; one has a million points.
"""

import asyncio
import json
import urllib.parse
from typing import Any

from benchmarks import serving
from benchmarks.curves import NUM_POINTS, add_curve
from benchmarks.filled import fill, gather_statistics, on_both_databases, set_up, spread

NUM_OPERATIONS, NUM_USERS, NUM_REQUESTS = 100_000, 8, 160
PAUSE = 1.0  # seconds that a user looks at a page, in the mean

PAGES = {
    "list": "/",
    "list, running": "/?tab=running",
    "filter by metric": "/?q=" + urllib.parse.quote("val_loss<0.001"),
    "filter by metric and tag": "/?q=" + urllib.parse.quote("val_loss<0.5 tag:rare"),
    "search, found": "/?q=50000",
    "search, not found": "/?q=nothing",
    "sort by metric": "/?sort=val_loss",
    "operation": "/operations/{one}/",
    "operation, 1,000,000 points": "/operations/{long}/",
    "compare of 12": "/compare/?ids={twelve}",
}


def main() -> dict[str, Any]:
    """Measure on both databases, print tables; return milliseconds by database, users and page."""
    results = on_both_databases("benchmarks.pages")
    for users in next(iter(results.values())):
        print(f"\n{NUM_OPERATIONS:,} operations, {NUM_USERS} users, {users}, milliseconds a page")
        print(f"{'':30}" + "".join(f"{f'{stack} p50':>18}{'p99':>9}" for stack in results))
        for page in PAGES:
            each = [result[users][page] for result in results.values()]
            print(f"{page:30}" + "".join(f"{one['p50']:18.1f}{one['p99']:9.1f}" for one in each))
    return results


def measure() -> dict[str, Any]:
    """Fill this process's database, then time every page."""
    set_up()
    from django.contrib.auth.models import User
    from django.test import Client

    from apps.operations.models import Operation

    fill(NUM_OPERATIONS)
    ids = list(Operation.objects.order_by("pk").values_list("pk", flat=True)[:12])
    add_curve(ids[1], 1, NUM_POINTS)
    gather_statistics()
    places = {"one": ids[0], "long": ids[1], "twelve": ",".join(ids)}
    cookies = []
    milliseconds: dict[str, dict[str, Any]] = {"a page a second each": {}, "without a pause": {}}
    for number in range(NUM_USERS):
        client = Client()
        client.force_login(User.objects.create_superuser(f"user{number}"))
        cookies.append(f"sessionid={client.cookies['sessionid'].value}")
    with serving.serving(serving.OURS) as port:
        for page, address in PAGES.items():
            path, num_each = address.format(**places), NUM_REQUESTS // NUM_USERS
            seconds = asyncio.run(
                serving.people(port, path, cookies, num_each=num_each, pause=PAUSE)
            )
            milliseconds["a page a second each"][page] = spread(seconds)
            _, seconds = asyncio.run(
                serving.load(port, path, cookies, NUM_USERS, num_requests=NUM_REQUESTS)
            )
            milliseconds["without a pause"][page] = spread(seconds)
    return milliseconds


if __name__ == "__main__":
    print(json.dumps(measure()))
