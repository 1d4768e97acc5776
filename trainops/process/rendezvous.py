"""How the ranks of an attempt find each other, and over which network they compute."""

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil
from torch.distributed import FileStore, Store, TCPStore  # type: ignore[attr-defined]  # public

from trainops.runtime.ranks import Devices

LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks find each other: a file in memory, or a store of the leading node.

    interface: the network interface of gloo and NCCL. By default no port is open to other machines.
    """

    path: Path = Path()
    host: str = ""  # the address of the leading node; empty: all ranks are on this machine
    port: int = 0
    interface: str = LOOPBACK
    listening: int | None = None  # the socket of the store, in the leading process

    def store(self, devices: Devices) -> Store:
        """Return the store, and choose the interface. Raises what torch does."""
        os.environ["GLOO_SOCKET_IFNAME"] = self.interface
        os.environ["NCCL_SOCKET_IFNAME"] = f"={self.interface}"  # this one, not all that begin so
        if not self.host:
            return FileStore(str(self.path), devices.num_ranks)
        return TCPStore(
            self.host,
            self.port,
            world_size=devices.num_ranks,
            is_master=devices.rank == 0,
            wait_for_workers=False,
            master_listen_fd=self.listening if devices.rank == 0 else None,
        )


def listening_at(address: str) -> socket.socket:
    """Return a socket that listens at a free port of this address only. Raises OSError."""
    is_6 = ipaddress.ip_address(address).version == 6
    return socket.create_server((address, 0), family=socket.AF_INET6 if is_6 else socket.AF_INET)


def check_addresses(leader: str, own: str) -> None:
    """Raise OSError where one of two nodes is reached by its own machine only."""
    is_loopback = [ipaddress.ip_address(each).is_loopback for each in (leader, own)]
    if is_loopback[0] != is_loopback[1]:
        raise OSError(
            f"TRAINOPS_NODE_ADDRESS: got {leader} for the leading node and {own} for this one; "
            "allowed: addresses of one network on both"
        )


def interface_of(address: str) -> str:
    """Return the network interface that has an address. Raises OSError."""
    if ipaddress.ip_address(address).is_loopback:
        return LOOPBACK
    found = psutil.net_if_addrs()
    for name, addresses in found.items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return name
    own = ", ".join(
        each.address.partition("%")[0]
        for addresses in found.values()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    )
    raise OSError(f"the address of this node: got {address}; allowed: one of this machine ({own})")
