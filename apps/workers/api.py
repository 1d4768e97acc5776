"""The doors of the registry: workers write (by their tokens), everyone with a role reads."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.workers import registry
from apps.workers.models import Worker
from apps.workers.registry import Order, WorkerNotFound
from apps.workers.serializers import (
    FIELDS,
    HeartbeatRequestSerializer,
    RegistrationSerializer,
    StandingSerializer,
    SyncRequestSerializer,
    WorkerSerializer,
)
from trainops.http.asking import body_of, query_of
from trainops.http.envelope import Page
from trainops.http.permissions import IsAdmin, IsWorker, WorkersWriteViewersRead
from trainops.http.serializers import MessageSerializer


class WorkersView(APIView):
    @extend_schema(operation_id="workers_list", responses=WorkerSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All workers that are registered, with how they are by the database's clock."""
        query_of(request)
        rows = list(Worker.objects.with_status().order_by("worker_id").values(*FIELDS))
        return Response(Page(rows, len(rows)))


class RegisterView(APIView):
    permission_classes = (IsWorker,)

    @extend_schema(
        operation_id="workers_register",
        request=RegistrationSerializer,
        responses=StandingSerializer,
    )
    def post(self, request: Request) -> Response:
        """Register, or register again, with what it runs; the answer says how to go on."""
        given = body_of(request, RegistrationSerializer)
        running = _held(given.pop("running"))
        given["current_operation_id"] = given["current_operation_id"] or ""
        registry.register(**given, num_running=len(running) or bool(given["current_operation_id"]))
        orders = registry.sync(worker_id=given["worker_id"], running=running)
        return _standing(given["worker_id"], orders)


class WorkerView(APIView):
    permission_classes = (WorkersWriteViewersRead,)

    @extend_schema(operation_id="workers_get", responses=WorkerSerializer)
    def get(self, request: Request, worker_id: str) -> Response:
        return Response(_shown(registry.get(worker_id)))

    @extend_schema(operation_id="workers_deregister", responses={200: MessageSerializer})
    def delete(self, request: Request, worker_id: str) -> Response:
        """Say goodbye. What it still ran is given up when its leases run out."""
        if not registry.deregister(worker_id=worker_id):
            raise WorkerNotFound(worker_id)
        return Response({"message": f"Worker {worker_id} is deregistered."})


class HeartbeatView(APIView):
    permission_classes = (IsWorker,)

    @extend_schema(
        operation_id="workers_heartbeat",
        request=HeartbeatRequestSerializer,
        responses=StandingSerializer,
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """It lives: renews the leases of what it runs. 404: it is to register again."""
        running = _held(body_of(request, HeartbeatRequestSerializer)["running"])
        known = registry.heartbeat(
            worker_id=worker_id,
            num_running=len(running),
            current_operation_id=running[0][0] if running else "",
        )
        if known is None:
            raise WorkerNotFound(worker_id)
        return _standing(worker_id, registry.sync(worker_id=worker_id, running=running))


class SyncView(APIView):
    permission_classes = (IsWorker,)

    @extend_schema(
        operation_id="workers_sync", request=SyncRequestSerializer, responses=StandingSerializer
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Compare what it runs with what the house knows; each attempt gets its order."""
        running = _held(body_of(request, SyncRequestSerializer)["running"])
        registry.get(worker_id)
        return _standing(worker_id, registry.sync(worker_id=worker_id, running=running))


class DrainView(APIView):
    permission_classes = (IsAdmin,)
    is_draining = True

    @extend_schema(operation_id="workers_drain", request=None, responses=WorkerSerializer)
    def post(self, request: Request, worker_id: str) -> Response:
        """Have it finish what it runs and take nothing new."""
        return self._drain(request, worker_id)

    def _drain(self, request: Request, worker_id: str) -> Response:
        body_of(request)
        worker = registry.drain(worker_id=worker_id, is_draining=self.is_draining)
        return Response(_shown(worker))


class UndrainView(DrainView):
    is_draining = False

    @extend_schema(operation_id="workers_undrain", request=None, responses=WorkerSerializer)
    def post(self, request: Request, worker_id: str) -> Response:
        """Have it take work again."""
        return self._drain(request, worker_id)


def _held(running: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(each["operation_id"], each["attempt"]) for each in running]


def _shown(worker: Worker) -> dict[str, Any]:
    return {name: getattr(worker, name) for name in FIELDS}


def _standing(worker_id: str, orders: list[Order]) -> Response:
    worker = registry.get(worker_id)
    return Response(
        {
            "worker_id": worker_id,
            "status": _shown(worker)["status"],
            "registered_at": worker.registered_at,
            "is_draining": worker.is_draining,
            "orders": [asdict(order) for order in orders],
        }
    )
