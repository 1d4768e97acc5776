"""Machines that are network namespaces of this one, with a network between them that can be cut."""

import os
import secrets
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager

PROGRAM = (sys.executable, "-m", "trainops")


def are_possible():
    """Whether network namespaces can be created here: by root, with iproute2."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"trainops-{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode:
        return False
    _ip("netns", "del", name)
    return True


class Machines:
    """Namespaces with an interface each, `net0`, joined by a bridge in one of their own."""

    def __init__(self, number):
        prefix = f"trainops-{secrets.token_hex(3)}"
        self._hub = f"{prefix}-hub"
        self._names = [f"{prefix}-{each}" for each in range(number)]
        self.addresses = [f"10.77.0.{each + 1}" for each in range(number)]

    @contextmanager
    def opened(self):
        with ExitStack() as stack:
            for name in (self._hub, *self._names):
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "del", name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", self._hub, "link", "add", "bridge0", "type", "bridge")
            _ip("-n", self._hub, "link", "set", "bridge0", "up")
            for number, (name, address) in enumerate(zip(self._names, self.addresses, strict=True)):
                port = f"port{number}"
                peer = ("peer", "name", "net0", "netns", name)
                _ip("-n", self._hub, "link", "add", port, "type", "veth", *peer)
                _ip("-n", self._hub, "link", "set", port, "master", "bridge0", "up")
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "net0")
                _ip("-n", name, "link", "set", "net0", "up")
            yield self

    def program(self, number):
        """Return the command line of trainops on this machine."""
        return "ip", "netns", "exec", self._names[number], *PROGRAM

    def cut(self, number):
        """Cut this machine off: its packets are dropped, and connections stay open."""
        _ip("-n", self._hub, "link", "set", f"port{number}", "down")

    def mend(self, number):
        _ip("-n", self._hub, "link", "set", f"port{number}", "up")


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
