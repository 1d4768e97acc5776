"""`healthcheck.py PORT PATH`: exit code 0 when the local web server answers 200, 1 otherwise.

Standard library only: it runs every few seconds.
"""

import http.client
import os
import sys

TIMEOUT_SECONDS = 4.0


def is_healthy(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": _allowed_host()})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _allowed_host() -> str:
    """A name that the server accepts, whatever the installation calls itself."""
    first = os.environ.get("TRAINOPS_ALLOWED_HOSTS", "").split(",")[0].strip().lstrip(".")
    return first if first not in ("", "*") else "localhost"


if __name__ == "__main__":
    sys.exit(0 if is_healthy(int(sys.argv[1]), sys.argv[2]) else 1)
