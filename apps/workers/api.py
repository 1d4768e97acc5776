"""Endpoints of the worker registry: workers write (with their tokens), every role may read."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from drf_spectacular.utils import extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.workers import registry, reports
from apps.workers.load import MachineLoad, samples
from apps.workers.models import Worker
from apps.workers.registry import WorkerNotFound
from apps.workers.rows import AttemptEnd, AttemptKey
from apps.workers.serializers import (
    FIELDS,
    HeartbeatRequestSerializer,
    HeartbeatResponseSerializer,
    LoadOfDaySerializer,
    RegistrationSerializer,
    SyncRequestSerializer,
    WorkerSerializer,
)
from trainops.http import closing
from trainops.http.asking import body_of, person, query_of
from trainops.http.envelope import Page
from trainops.http.parsers import ReportParser
from trainops.http.permissions import (
    IsAdmin,
    IsWorker,
    WorkersWriteViewersRead,
    worker_token,
)
from trainops.http.serializers import MessageSerializer


class WorkersView(APIView):
    @extend_schema(operation_id="workers_list", responses=WorkerSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the registered workers with their status."""
        query_of(request)
        rows = list(Worker.objects.with_status().order_by("worker_id").values(*FIELDS))
        return Response(Page(rows, len(rows)))


class WorkersDoor(APIView):
    """Where workers call of themselves: first of all they hear that the server is going away."""

    permission_classes = (IsWorker,)
    parser_classes: Sequence[type[BaseParser]] = (ReportParser,)

    def initial(self, request: Request, *args: object, **kwargs: Any) -> None:
        closing.require_open()
        super().initial(request, *args, **kwargs)
        if worker_id := kwargs.get("worker_id"):
            registry.require_speaker(worker_token(request), worker_id)


class RegisterView(WorkersDoor):
    @extend_schema(
        operation_id="workers_register",
        request=RegistrationSerializer,
        responses=HeartbeatResponseSerializer,
    )
    def post(self, request: Request) -> Response:
        """Register a worker with its attempts; the response has the directives."""
        given = body_of(request, RegistrationSerializer)
        registry.bind(worker_token(request), given["worker_id"])
        report = WorkerReport.of(given.pop("running"), given.pop("completed"))
        given["current_operation_id"] = given["current_operation_id"] or ""
        report.also_runs(given["worker_id"], given["current_operation_id"])
        registry.register(**given, num_running=len(report.running))
        return _heartbeat_response(given["worker_id"], report)


class WorkerView(APIView):
    permission_classes = (WorkersWriteViewersRead,)

    @extend_schema(operation_id="workers_get", responses=WorkerSerializer)
    def get(self, request: Request, worker_id: str) -> Response:
        """Return a worker with its status."""
        return Response(_shown(registry.get(worker_id)))

    @extend_schema(operation_id="workers_deregister", responses={200: MessageSerializer})
    def delete(self, request: Request, worker_id: str) -> Response:
        """Deregister a worker. Its remaining attempts are lost when their leases expire."""
        registry.require_speaker(worker_token(request), worker_id)
        if not registry.deregister(worker_id=worker_id):
            raise WorkerNotFound(worker_id)
        return Response({"message": f"Worker {worker_id} was deregistered."})


class LoadView(APIView):
    @extend_schema(operation_id="workers_load", responses=LoadOfDaySerializer)
    def get(self, request: Request, worker_id: str) -> Response:
        """Return how busy the machine of a worker was: a sample of each minute of the last day."""
        query_of(request)
        registry.get(worker_id)
        names = ("at", "cpu_percent", "memory_bytes", "gpus")
        rows = [{name: getattr(each, name) for name in names} for each in samples(worker_id)]
        return Response({"worker_id": worker_id, "samples": rows})


class HeartbeatView(WorkersDoor):
    @extend_schema(
        operation_id="workers_heartbeat",
        request=HeartbeatRequestSerializer,
        responses=HeartbeatResponseSerializer,
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Send a heartbeat and renew the leases of all attempts. 404: register again."""
        given = body_of(request, HeartbeatRequestSerializer)
        report = WorkerReport.of(given["running"], given["completed"])
        known = registry.heartbeat(
            worker_id=worker_id,
            num_running=len(report.running),
            current_operation_id=report.running[0][0] if report.running else "",
            last_error=given["last_error"],
            load=None if given["load"] is None else MachineLoad(**given["load"]),
        )
        if known is None:
            raise WorkerNotFound(worker_id)
        return _heartbeat_response(worker_id, report)


class SyncView(WorkersDoor):
    @extend_schema(
        operation_id="workers_sync",
        request=SyncRequestSerializer,
        responses=HeartbeatResponseSerializer,
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Compare the worker's attempts with the database; answer each with a directive."""
        given = body_of(request, SyncRequestSerializer)
        registry.get(worker_id)
        return _heartbeat_response(worker_id, WorkerReport.of(given["running"], given["completed"]))


class DrainView(APIView):
    permission_classes = (IsAdmin,)

    @extend_schema(operation_id="workers_drain", request=None, responses=WorkerSerializer)
    def post(self, request: Request, worker_id: str) -> Response:
        """Drain a worker: it finishes its operations and accepts no new ones."""
        body_of(request)
        reason = registry.drained_by(person(request).get_username())
        return Response(_shown(registry.drain(worker_id=worker_id, reason=reason)))


class UndrainView(APIView):
    permission_classes = (IsAdmin,)

    @extend_schema(operation_id="workers_undrain", request=None, responses=WorkerSerializer)
    def post(self, request: Request, worker_id: str) -> Response:
        """Let a drained worker accept work again."""
        body_of(request)
        return Response(_shown(registry.undrain(worker_id=worker_id)))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says that it has: attempts that run, and attempts that have ended."""

    running: list[reports.Key]
    ended: list[reports.Ended]

    @classmethod
    def of(cls, running: list[AttemptKey], ended: list[AttemptEnd]) -> Self:
        held = [(each["operation_id"], each["attempt"]) for each in running]
        return cls(held, [reports.Ended(**each) for each in ended])

    def also_runs(self, worker_id: str, operation_id: str) -> None:
        """Add what it names without an attempt."""
        named = {each for each, _ in self.running} | {each.operation_id for each in self.ended}
        if operation_id and operation_id not in named:
            self.running.append(reports.newest_attempt(worker_id, operation_id))


def _shown(worker: Worker) -> dict[str, object]:
    return {name: getattr(worker, name) for name in FIELDS}


def _heartbeat_response(worker_id: str, report: WorkerReport) -> Response:
    # What has ended comes first: it must be neither marked as lost nor sent a grant.
    verdicts = reports.finalize(worker_id=worker_id, ended=report.ended)
    orders = reports.sync(worker_id=worker_id, running=report.running)
    if any(order.directive != "stop" for order in orders):
        registry.serves(worker_id=worker_id)
    worker = registry.get(worker_id)
    return Response(
        {
            "worker_id": worker_id,
            "status": _shown(worker)["status"],
            "registered_at": worker.registered_at,
            "is_draining": worker.is_draining,
            "stop_operations": reports.stop_operations(orders),
            "orders": [asdict(order) for order in orders],
            "completed": [asdict(verdict) for verdict in verdicts],
        }
    )
