"""The client for asyncio: each request of `handles` in a thread, each pause in the event loop."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from trainops.client.handles import Client, Handle
from trainops.client.responses import LoggedMedia, Operation, TableRow


class AsyncClient:
    """See `Client`."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, context: str | None = None
    ) -> None:
        self._client = Client(url, token, context=context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()

    async def run(
        self,
        source: str | Path | Mapping[str, object],
        *,
        changes: Mapping[str, object] | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        project: str | None = None,
        key: str = "",
    ) -> "AsyncHandle":
        """See `Client.run`."""
        made = await asyncio.to_thread(
            self._client.run, source, changes=changes, name=name, tags=tags, project=project,
            key=key,
        )  # fmt: skip
        return AsyncHandle(made)

    async def operation(self, reference: str) -> "AsyncHandle":
        """See `Client.operation`."""
        return AsyncHandle(await asyncio.to_thread(self._client.operation, reference))

    async def table(self, query: str = "", *, limit: int = 100) -> Any:
        """See `Client.table`."""
        return await asyncio.to_thread(self._client.table, query, limit=limit)

    async def table_rows(self, query: str = "", *, limit: int = 100) -> list[TableRow]:
        """See `Client.table_rows`."""
        return await asyncio.to_thread(self._client.table_rows, query, limit=limit)

    async def operations(self, query: str = "", *, limit: int = 20) -> "list[AsyncHandle]":
        """See `Client.operations`."""
        found = await asyncio.to_thread(self._client.operations, query, limit=limit)
        return [AsyncHandle(each) for each in found]

    async def version_difference(self) -> str:
        """See `Client.version_difference`."""
        return await asyncio.to_thread(self._client.version_difference)


class AsyncHandle:
    """See `Handle`; `handle` is the one that this stands on."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.id = handle.id

    def __repr__(self) -> str:
        return f"Async{self.handle!r}"

    def _repr_html_(self) -> str:
        return self.handle._repr_html_()

    @property
    def data(self) -> Operation:
        return self.handle.data

    @property
    def state(self) -> str:
        return self.handle.state

    @property
    def percent(self) -> float:
        return self.handle.percent

    @property
    def is_finished(self) -> bool:
        return self.handle.is_finished

    @property
    def url(self) -> str:
        return self.handle.url

    async def refresh(self) -> Self:
        """See `Handle.refresh`."""
        await asyncio.to_thread(self.handle.refresh)
        return self

    async def wait(self, timeout: float | None = None) -> Self:
        """See `Handle.wait`; to cancel the task ends the waiting, not the operation."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        look = self.handle._refresh_until
        while not (await asyncio.to_thread(look, give_up_at)).is_finished:
            await asyncio.sleep(self.handle.pause(give_up_at))
        self.handle.require_not_failed()
        return self

    async def metric_rows(self) -> list[dict[str, float]]:
        """See `Handle.metric_rows`."""
        return await asyncio.to_thread(self.handle.metric_rows)

    async def metrics(self) -> Any:
        """See `Handle.metrics`."""
        return await asyncio.to_thread(self.handle.metrics)

    async def media(self, name: str | None = None) -> list[LoggedMedia]:
        """See `Handle.media`."""
        return await asyncio.to_thread(self.handle.media, name)

    async def save_media(self, directory: str | Path = ".", name: str | None = None) -> list[Path]:
        """See `Handle.save_media`."""
        return await asyncio.to_thread(self.handle.save_media, directory, name)

    async def log(self) -> str:
        """See `Handle.log`."""
        return await asyncio.to_thread(self.handle.log)

    async def cancel(self) -> Self:
        """See `Handle.cancel`."""
        await asyncio.to_thread(self.handle.cancel)
        return self

    async def kill(self) -> Self:
        """See `Handle.kill`."""
        await asyncio.to_thread(self.handle.kill)
        return self

    async def stop(self, timeout: float | None = None) -> Self:
        """See `Handle.stop`."""
        return await (await self.cancel()).wait(timeout)

    async def resume(self, checkpoint: str | None = None, *, accept_inexact: bool = False) -> Self:
        """See `Handle.resume`."""
        await asyncio.to_thread(self.handle.resume, checkpoint, accept_inexact=accept_inexact)
        return self

    async def fork(
        self,
        changes: Mapping[str, object],
        *,
        checkpoint: str = "",
        name: str = "",
        project: str | None = None,
        accept_inexact: bool = False,
    ) -> "AsyncHandle":
        """See `Handle.fork`."""
        made = await asyncio.to_thread(
            self.handle.fork, changes, checkpoint=checkpoint, name=name, project=project,
            accept_inexact=accept_inexact,
        )  # fmt: skip
        return AsyncHandle(made)

    async def extend(
        self,
        to: int,
        *,
        checkpoint: str = "",
        name: str = "",
        project: str | None = None,
        accept_inexact: bool = False,
    ) -> "AsyncHandle":
        """See `Handle.extend`."""
        made = await asyncio.to_thread(
            self.handle.extend, to, checkpoint=checkpoint, name=name, project=project,
            accept_inexact=accept_inexact,
        )  # fmt: skip
        return AsyncHandle(made)

    async def download(self, directory: str | Path = ".", *, checkpoint: str = "") -> list[Path]:
        """See `Handle.download`."""
        return await asyncio.to_thread(self.handle.download, directory, checkpoint=checkpoint)
