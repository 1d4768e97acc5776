"""Starting a process as a user with fewer rights."""

import os
import pwd
from contextlib import suppress
from typing import TypedDict


class ProcessUser(TypedDict):
    """Whom a process is started as: what subprocess takes; all None to stay who we are."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None


def identity(user: str | None) -> ProcessUser:
    if user is None:
        return {"user": None, "group": None, "extra_groups": None}
    account = pwd.getpwnam(user)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def unprivileged_user() -> str | None:
    """Whom PostgreSQL runs as: it refuses root. None where we are not root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"
