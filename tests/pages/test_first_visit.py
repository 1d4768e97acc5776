"""How many bytes a browser loads that has never been here."""

import re

import pytest

from tests.pages import making

LOADED = re.compile(r'<(?:link|script)[^>]* (?:href|src)="(/static/[^"]+)"')
IMPORTED = re.compile(r'from "\./([^"]+)"')
FONT = "/static/vendor/inter-5.3.0/inter-latin-wght-normal.woff2"  # the only subset for English
MAX_BYTES = 250_000


def loaded(client, path, sizes):
    """Add the size of a file, and of the modules that it imports, as they are sent."""
    if path in sizes:
        return
    sent = client.get(path, headers={"accept-encoding": "gzip"})
    sizes[path] = len(b"".join(sent))
    sent.close()
    if path.endswith(".js"):
        plain = client.get(path)
        source = b"".join(plain).decode()
        plain.close()
        for name in IMPORTED.findall(source):
            loaded(client, f"{path.rpartition('/')[0]}/{name}", sizes)


@pytest.mark.parametrize("name", ["list", "operation", "new", "tour"])
def test_a_first_visit_loads_little(page, ana, name):
    operation = making.operation(ana, "COMPLETED")
    making.curve(operation)
    address = {"list": "/", "operation": operation.get_absolute_url(), "new": "/operations/new"}
    address["tour"] = "/"
    html = page.get(address[name], headers={"accept-encoding": "gzip"})
    sizes = {address[name]: len(html.content)}
    assert html["Content-Encoding"] == "gzip"
    scripts = []
    if name == "tour":  # the first page behind the first sign-in
        fetch = {"accept-encoding": "gzip", "X-Requested-With": "fetch"}
        sizes["/help/tour"] = len(page.get("/help/tour", headers=fetch).content)
        scripts.append("/static/js/tour.js")
    for path in [FONT, *scripts, *LOADED.findall(page.get(address[name]).content.decode())]:
        loaded(page, path, sizes)
    assert "/static/js/poll.js" in sizes
    assert sum(sizes.values()) < MAX_BYTES, sizes
