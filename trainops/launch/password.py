"""Reset a password of this installation without a server. Run as a process of its own:

    python -m trainops.launch.password USERNAME

For admins who cannot sign in any more. It requires write access to the database.
"""

import os
import sys
from collections.abc import Sequence

import django
from django.db import DatabaseError
from pydantic import ValidationError

from trainops import paths
from trainops.errors import DomainError
from trainops.launch import embedded


def reset(username: str) -> str:
    """Return the new, random password of a user. Raises DomainError: there is no such user."""
    from trainops.http import users  # noqa: PLC0415 - models need django.setup()

    return users.reset_password(users.get(username), by=None)


def main(arguments: Sequence[str]) -> int:
    """Print the new password. Exit codes: 0 done, 2 refused, with one line on standard error."""
    (username,) = arguments
    directory = paths.data_dir()
    if not directory.is_dir():
        return _refuse(f"There is no installation in {directory} (TRAINOPS_DATA_DIR).")
    if not (directory / "trainops.sqlite3").exists() and (directory / "postgres").is_dir():
        # The database of `up --postgres`, which runs while `up` does.
        os.environ.setdefault(
            "TRAINOPS_DATABASE_URL", embedded.postgres_url(directory.resolve() / "postgres")
        )
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trainops.settings")
    try:
        django.setup()
        password = reset(username)
    except ValidationError as error:  # of the settings
        return _refuse("; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors()))
    except DatabaseError as error:
        return _refuse(f"The database is not usable: {str(error).strip().splitlines()[0]}")
    except DomainError as error:
        return _refuse(error.message)
    print(password)
    return 0


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
