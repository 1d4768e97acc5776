"""A TCP proxy that fails as networks do: it cuts, stalls, delays and forgets connections."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

CHUNK = 1 << 16
DELAY_SECONDS = 0.2
LOOK_SECONDS = 0.05
Target: TypeAlias = Path | tuple[str, int]


class Proxy:
    """Forwards 127.0.0.1:`port` to a unix socket or an address, as well as `mode` lets it.

    pass   everything goes through
    slow   every piece takes 0.2 s more
    stall  nothing goes through, nothing is closed: a partition
    cut    every connection is reset, new ones too
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.port = 0
        self.mode = "pass"
        self.is_ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._lines: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def become(self, mode: str) -> None:
        self.mode = mode
        if mode == "cut":
            self._loop.call_soon_threadsafe(self._cut)

    def forget(self) -> None:
        """Leave what is connected now half open without limit; new connections work."""
        self._loop.call_soon_threadsafe(lambda: self._forgotten.update(self._lines))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.is_ready.set()
        await self._stopped.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._cut()
        await asyncio.sleep(LOOK_SECONDS)  # the transports close in the loop's next turns

    def _cut(self) -> None:
        for line in self._lines:
            line.transport.abort()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = {writer}
        self._lines |= lines
        try:
            if self.mode != "cut":
                there, back = await self._reach()
                lines.add(back)
                self._lines |= lines
                await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except OSError:
            return
        finally:
            for line in lines:
                line.transport.abort()
            self._lines -= lines
            self._forgotten -= lines

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.target, Path):
            return await asyncio.open_unix_connection(str(self.target))
        return await asyncio.open_connection(*self.target)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(CHUNK):
            if self.mode == "slow":
                await asyncio.sleep(DELAY_SECONDS)
            while self.mode == "stall" or writer in self._forgotten:
                await asyncio.sleep(LOOK_SECONDS)
            writer.write(piece)
            await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.write_eof()


@contextmanager
def proxy(target: Target) -> Iterator[Proxy]:
    made = Proxy(target)
    thread = threading.Thread(target=made.run, name="proxy", daemon=True)
    thread.start()
    made.is_ready.wait(5)
    try:
        yield made
    finally:
        made.stop()
        thread.join(5)
