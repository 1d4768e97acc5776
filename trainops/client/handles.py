"""Operations of a server as Python objects."""

import time
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from trainops.client import curves, files, media, server, tables
from trainops.client.api import Api, difference_of
from trainops.client.problems import Problem, Unreachable
from trainops.client.references import operation_id
from trainops.client.responses import LoggedMedia, Operation, TableRow
from trainops.plain import Config, JsonObject
from trainops.submission_file import FileProblem
from trainops.submission_file import read as read_file

FINISHED = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
POLL_SECONDS = 1.0
READ_TRIES = 3  # of curves that a resume changes meanwhile
ROW = "<tr><th style='text-align:left'>{}</th><td style='text-align:left'>{}</td></tr>"


class OperationFailed(Problem):
    """The operation that was waited for FAILED; `code` is the reason."""

    def __init__(self, operation: Operation) -> None:
        error = operation.get("error") or {}
        self.code = error.get("code") or operation.get("reason") or "FAILED"
        message = error.get("message") or "no message"
        super().__init__(f"{operation['operation_id']} FAILED: {self.code}: {message}")


class Client:
    """One server; safe to use from several threads.

    url, token: by default TRAINOPS_URL and TRAINOPS_TOKEN, else those of the current context, else
    what `up` or `login` saved. context: a name of `trainops context ls`, instead of a URL.

    Its methods raise Refused (the server's answer was no; `code`, `fields`), Unreachable (no
    response, or only a part of one) or Problem, the base of both.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, context: str | None = None
    ) -> None:
        self.api = Api(server.find(url=url, token=token, context=context))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def run(
        self,
        source: str | Path | Mapping[str, object],
        *,
        changes: Mapping[str, object] | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        project: str | None = None,
        key: str = "",
    ) -> "Handle":
        """Submit an operation.

        source: path of a YAML file, or its content as a mapping: `kind`, `config`, `name`, …
        changes: fields of the config by path, such as {"checkpoint.every_steps": 10}.
        key: submissions with the same key create one operation; by default a new one.
        """
        body: dict[str, Any] = dict(source) if isinstance(source, Mapping) else _read(Path(source))
        body["config"] = _changed(body.get("config") or {}, changes or {})
        given = {"name": name, "project": project}
        body |= {field: value for field, value in given.items() if value is not None}
        if tags:
            body["tags"] = [*(body.get("tags") or ()), *tags]
        return Handle(self.api, self.api.submit("operations", body, key=key))

    def operation(self, reference: str) -> "Handle":
        """Return the operation of an id, or of its last 4 or first 8 letters, or more of them.

        Raises Problem: none matches, or several; its hints are those that match.
        """
        found = operation_id(self.api, reference)
        return Handle(self.api, self.api.get(f"operations/{found}"))

    def operations(self, query: str = "", *, limit: int = 20) -> "list[Handle]":
        """Return at most `limit` operations that match a query, latest first."""
        page = self.api.rows("operations", q=query or None, limit=limit)
        return [Handle(self.api, row) for row in page.rows]

    def table_rows(self, query: str = "", *, limit: int = 100) -> list[TableRow]:
        """Return a row for each operation that matches a query, latest first.

        Its columns are `operation_id`, `name`, `kind`, `recipe`, `status`, `reason`, `owner`,
        `created_at`, `finished_at`; `config.PATH` for each value of the config; `latest.METRIC`,
        `best.METRIC`, `lowest.METRIC` and `highest.METRIC`, and `result.PATH` of results. Best
        values are of two operations or more.
        """
        return tables.rows(self.api, self.api.rows("operations", q=query or None, limit=limit).rows)

    def table(self, query: str = "", *, limit: int = 100) -> Any:
        """Return `table_rows` as a pandas DataFrame with the index `operation_id`.

        Without pandas: the rows themselves.
        """
        rows = self.table_rows(query, limit=limit)
        if find_spec("pandas") is None:
            return rows
        frame = import_module("pandas").DataFrame(rows or {"operation_id": []})
        return frame.set_index("operation_id")

    def version_difference(self) -> str:
        """Return a sentence if the server has another version than this client, else nothing."""
        self.api.get("me")
        return difference_of(self.api.server_version)


class Handle:
    """One operation. `data` is its last known state, as the API returns it."""

    def __init__(self, api: Api, data: Operation) -> None:
        self._api, self.data = api, data
        self.id = data["operation_id"]

    def __repr__(self) -> str:
        return f"<Handle {self.id} {self.state} {self.percent:.0f} %>"

    @property
    def state(self) -> str:
        """PENDING, RUNNING, RESUMING, COMPLETED, FAILED or CANCELLED."""
        return self.data["status"]

    @property
    def percent(self) -> float:
        return self.data.get("percent") or 0.0

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def url(self) -> str:
        """Address of its page."""
        return self._api.server.page(self.id)

    def refresh(self) -> Self:
        """Read its state again."""
        self.data = self._api.get(f"operations/{self.id}")
        return self

    def wait(self, timeout: float | None = None, *, show: bool = False) -> Self:
        """Wait until it is finished.

        timeout: seconds, by default without end. show: draw its state in a notebook meanwhile.

        Raises OperationFailed, and TimeoutError: the operation continues.
        """
        give_up_at = None if timeout is None else time.monotonic() + timeout
        view = _View(self) if show else None
        while not self._refresh_until(give_up_at).is_finished:
            if view is not None:
                view.update()
            time.sleep(self.pause(give_up_at))
        if view is not None:
            view.update()
        return self.require_not_failed()

    def _refresh_until(self, give_up_at: float | None) -> Self:
        """Read its state again. Raises TimeoutError: there was no response until then."""
        if give_up_at is None:
            return self.refresh()
        try:
            self.data = self._api.until(give_up_at).get(f"operations/{self.id}")
        except Unreachable as problem:
            if time.monotonic() < give_up_at:
                raise
            raise TimeoutError(f"{self.id} was {self.state} before: {problem}") from problem
        return self

    def pause(self, give_up_at: float | None) -> float:
        """Return the seconds until the next look. Raises TimeoutError."""
        rest = POLL_SECONDS if give_up_at is None else give_up_at - time.monotonic()
        if rest <= 0:
            raise TimeoutError(f"{self.id} is still {self.state}; it continues")
        return min(POLL_SECONDS, rest)

    def require_not_failed(self) -> Self:
        """Raise OperationFailed if it FAILED."""
        if self.state == "FAILED":
            raise OperationFailed(self.data)
        return self

    def metric_rows(self) -> list[dict[str, float]]:
        """Return a row for each step, with the value of each metric measured there.

        Points of steps that a resume computed again are left out.
        """
        for rest in reversed(range(READ_TRIES)):
            try:
                return curves.by_step(curves.pages(self._api, self.id))
            except curves.PointsChanged:
                if not rest:
                    raise
        raise AssertionError

    def metrics(self) -> Any:
        """Return `metric_rows` as a pandas DataFrame with the index `step`.

        Without pandas: the rows themselves.
        """
        rows = self.metric_rows()
        if find_spec("pandas") is None:
            return rows
        frame = import_module("pandas").DataFrame(rows or {"step": []})
        return frame.set_index("step")

    def media(self, name: str | None = None) -> list[LoggedMedia]:
        """Return what its recipe logged besides numbers: a list of `name` and `steps`.

        Each of the steps has `step`, `attempt`, `type` and `items` with `id` and `caption`.
        """
        return media.listed(self._api, self.id, name)

    def save_media(self, directory: str | Path = ".", name: str | None = None) -> list[Path]:
        """Write the items as PNG, WAV and JSON files into a directory; return their paths.

        Raises Problem and OSError.
        """
        return media.save(self._api, self.id, Path(directory), name)

    def log(self) -> str:
        """Return its whole log."""
        parts: list[bytes] = []
        self._api.read(f"operations/{self.id}/logs.txt", parts.append)
        return b"".join(parts).decode(errors="replace")

    def cancel(self) -> Self:
        """Ask it to save a checkpoint at the next safe point and to stop."""
        return self._acted("cancel")

    def kill(self) -> Self:
        """Stop it at once; work since the last checkpoint is lost."""
        return self._acted("kill")

    def stop(self, timeout: float | None = None) -> Self:
        """Cancel it, and wait until it has stopped; see `wait`."""
        return self.cancel().wait(timeout)

    def resume(self, checkpoint: str | None = None, *, accept_inexact: bool = False) -> Self:
        """Continue from a checkpoint; by default from the latest healthy one.

        `checkpoint`: an id, "latest", "best" or "best:METRIC". `accept_inexact`: resume even if
        that is not exact, because files of the recipe were changed or the config requires it;
        without it, such a resume raises Refused with the code CODE_CHANGED, or fails.
        """
        body: dict[str, Any] = {"checkpoint_id": checkpoint} if checkpoint else {}
        if accept_inexact:
            body["accept_inexact"] = True
        self._api.post(f"operations/{self.id}/resume", body)
        return self.refresh()

    def fork(
        self,
        changes: Mapping[str, object],
        *,
        checkpoint: str = "",
        name: str = "",
        project: str | None = None,
        accept_inexact: bool = False,
    ) -> "Handle":
        """Submit an operation that continues from a checkpoint of this one with another config.

        project: by default that of this one. `accept_inexact`: submit it even if that is not
        exact, because files of the recipe were changed; without it, this raises Refused with the
        code CODE_CHANGED.
        """
        config = _changed({}, changes)
        body = {"checkpoint_id": checkpoint, "name": name, "project": project, "config": config}
        return self._branch("fork", body, accept_inexact=accept_inexact)

    def extend(
        self,
        to: int,
        *,
        checkpoint: str = "",
        name: str = "",
        project: str | None = None,
        accept_inexact: bool = False,
    ) -> "Handle":
        """Submit a fork that runs longer: `to` epochs, rounds or steps in total; see `fork`."""
        body = {"checkpoint_id": checkpoint, "name": name, "project": project, "to": to}
        return self._branch("extend", body, accept_inexact=accept_inexact)

    def download(self, directory: str | Path = ".", *, checkpoint: str = "") -> list[Path]:
        """Write the files of a checkpoint into a directory; return their paths.

        checkpoint: its id, `latest` or `best`; by default the final one, else the latest.

        Each is compared with its digest. Raises Problem and OSError.
        """
        return files.download(self._api, self.id, Path(directory), checkpoint=checkpoint)

    def _branch(self, verb: str, body: dict[str, Any], *, accept_inexact: bool) -> "Handle":
        if accept_inexact:
            body["accept_inexact"] = True
        return Handle(self._api, self._api.submit(f"operations/{self.id}/{verb}", body))

    def _acted(self, verb: str) -> Self:
        self._api.post(f"operations/{self.id}/{verb}")
        return self.refresh()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        metrics = self.data.get("metrics") or {}
        rows = {"operation": self.id, "name": self.data["name"], "state": self.state} | metrics
        body = "".join(ROW.format(escape(str(name)), escape(str(rows[name]))) for name in rows)
        bar = f"<progress max='100' value='{self.percent:.1f}'></progress> {self.percent:.0f} %"
        link = f"<a href='{escape(self.url)}'>page</a>"
        return f"<table>{body}</table>{bar} {link}"


class _View:
    """Draws a handle in a notebook again and again in one place; elsewhere nothing."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._display = None
        if find_spec("IPython") is not None:
            display = import_module("IPython.display").display
            self._display = display(handle, display_id=True)  # None outside of notebooks

    def update(self) -> None:
        if self._display is not None:
            self._display.update(self._handle)


def _read(path: Path) -> JsonObject:
    try:
        return dict(read_file(path.read_text(encoding="utf-8")).body)
    except FileProblem as error:
        raise Problem(f"{path}:{error.line}: {error.why}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {error}") from error


def _changed(config: Mapping[str, object], changes: Mapping[str, object]) -> Config:
    """Return a config with other values at these paths. Raises Problem: one leads through none."""
    found = dict(config)
    for path, value in changes.items():
        first, dot, rest = path.partition(".")
        if not dot:
            found[first] = value
            continue
        inner = found.get(first) or {}
        if not isinstance(inner, Mapping):
            raise Problem(f"{path}: {first} is {inner!r} and has no fields")
        found[first] = _changed(inner, {rest: value})
    return found
