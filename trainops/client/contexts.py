"""Named servers of a user: address and token of each, and which is used by default."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex

from trainops.client.problems import ExitCode, Problem
from trainops.paths import COMMAND

LOCAL = "local"  # the server that `up` or `login` saved in the data directory; not in the file
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class ServerContext:
    """A server. `url`: without a slash at its end; `token`: empty before the first sign-in."""

    url: str
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the file holds. `current`: a name of `named`, or empty for `local`."""

    current: str = ""
    named: Mapping[str, ServerContext] = field(default_factory=dict)

    def require(self, name: str) -> ServerContext:
        """Return the context of a name. Raises Problem: there is none."""
        if name not in self.named:
            allowed = ", ".join((LOCAL, *self.named))
            raise Problem(f"No context {name!r}; allowed: {allowed}", ExitCode.NOT_FOUND)
        return self.named[name]

    def added(self, name: str, context: ServerContext) -> "Contexts":
        """Return them with another one. Raises Problem: the name is taken or cannot be used."""
        if NAME.fullmatch(name) is None or name == LOCAL:
            raise Problem(
                f"got {name!r}; allowed: up to 64 letters, digits, '_', '.' and '-', not {LOCAL!r}",
                ExitCode.USAGE,
            )
        if name in self.named:
            raise Problem(
                f"A context {name!r} already exists.",
                ExitCode.CONFLICT,
                hints=(f"{COMMAND} context rm {name}",),
            )
        return replace(self, named={**self.named, name: context})

    def used(self, name: str) -> "Contexts":
        """Return them with this one as the current one. Raises Problem: there is none."""
        if name == LOCAL:
            return replace(self, current="")
        self.require(name)
        return replace(self, current=name)

    def removed(self, name: str) -> "Contexts":
        """Return them without one; `local` is current if it was. Raises Problem: there is none."""
        self.require(name)
        left = {each: context for each, context in self.named.items() if each != name}
        return Contexts("" if self.current == name else self.current, left)

    def signed_in(self, name: str, token: str) -> "Contexts":
        """Return them with a new token of one. Raises Problem: there is none."""
        context = replace(self.require(name), token=token)
        return replace(self, named={**self.named, name: context})


def file() -> Path:
    """Return `contexts.json` in the user's configuration directory (XDG)."""
    given = os.environ.get("XDG_CONFIG_HOME")
    return Path(given or "~/.config").expanduser() / "trainops" / "contexts.json"


def read() -> Contexts:
    """Return what the file holds; without a file, nothing. Raises Problem: it cannot be read."""
    path = file()
    try:
        found = json.loads(path.read_text())
        named = {
            str(name): ServerContext(str(each["url"]).rstrip("/"), str(each.get("token", "")))
            for name, each in found["contexts"].items()
        }
        current = str(found.get("current", ""))
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{path} cannot be used ({type(error).__name__})", ExitCode.USAGE) from error
    return Contexts(current if current in named else "", named)


def write(contexts: Contexts) -> Path:
    """Write the file, readable by its owner only; return its path. Raises Problem."""
    path = file()
    named = {name: {"url": each.url, "token": each.token} for name, each in contexts.named.items()}
    content = {"current": contexts.current, "contexts": named}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror}", ExitCode.USAGE) from error
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner can read, at once. Raises OSError."""
    draft = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
