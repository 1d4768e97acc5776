"""Change an account of this installation without a server. Run as a process of its own:

    python -m trainops.launch.password USERNAME [--remove-second-factor]

For admins who cannot sign in any more. It requires write access to the database.
"""

import sys
from collections.abc import Sequence

from django.db import DatabaseError

from trainops.errors import DomainError
from trainops.launch import installation
from trainops.launch.refusal import CannotStart

REMOVE_SECOND_FACTOR = "--remove-second-factor"


def reset(username: str) -> str:
    """Return the new, random password of a user. Raises DomainError: there is no such user."""
    from trainops.http import users  # noqa: PLC0415 - models need django.setup()

    return users.reset_password(users.get(username), by=None)


def remove_second_factor(username: str) -> str:
    """Remove the second factor of a user; return what was done. Raises DomainError."""
    from trainops.http import users  # noqa: PLC0415 - models need django.setup()

    users.remove_second_factor(users.get(username), by=None)
    return f"The second factor of {username} was removed."


def main(arguments: Sequence[str]) -> int:
    """Print the new password. Exit codes: 0 done, 2 refused, with one line on standard error."""
    username, *options = arguments
    try:
        installation.require()
        installation.open_database()
        change = remove_second_factor if REMOVE_SECOND_FACTOR in options else reset
        done = change(username)
    except CannotStart as problem:
        return _refuse(str(problem))
    except DatabaseError as error:
        return _refuse(f"The database is not usable: {str(error).strip().splitlines()[0]}")
    except DomainError as error:
        return _refuse(error.message)
    print(done)
    return 0


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
