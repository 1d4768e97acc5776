"""The endpoint of the installation's statistics."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.workers.statistics import DAYS, all_statistics
from trainops.http.asking import query_of
from trainops.http.etags import with_etag


class KindStatisticsSerializer(serializers.Serializer[Any]):
    """What operations of one kind amount to."""

    kind = serializers.CharField()
    states = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of operations by state."
    )
    num_checkpoints = serializers.IntegerField()
    checkpoint_bytes = serializers.IntegerField(help_text="A shared file counts once.")
    compute_hours = serializers.FloatField(
        help_text=f"Time of attempts in the last {DAYS} days, times their processes."
    )
    gpu_hours = serializers.FloatField(help_text="The same, times their GPUs.")


class WorkerStatisticsSerializer(serializers.Serializer[Any]):
    num_slots = serializers.IntegerField(help_text="Slots of workers that are not gone.")
    num_running = serializers.IntegerField(help_text="Running attempts on them.")
    statuses = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of workers by status."
    )


class DatasetStatisticsSerializer(serializers.Serializer[Any]):
    num_datasets = serializers.IntegerField()
    size_bytes = serializers.IntegerField()


class StatisticsSerializer(serializers.Serializer[Any]):
    """Numbers about the whole installation."""

    days = serializers.IntegerField(help_text="Length of the window of the hours.")
    kinds = KindStatisticsSerializer(many=True)
    workers = WorkerStatisticsSerializer()
    datasets = DatasetStatisticsSerializer()


class StatisticsView(APIView):
    @extend_schema(operation_id="stats", responses=StatisticsSerializer)
    @with_etag
    def get(self, request: Request) -> Response:
        """Return numbers of operations, slots, storage and compute hours."""
        query_of(request)
        return Response(all_statistics())
