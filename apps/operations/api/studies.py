"""Endpoints of studies: submit, list, compare, extend, cancel, kill, resume, delete."""

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.exchange import SubmissionFields
from apps.operations.api.operations import KEY, idempotency_key
from apps.operations.api.serializers import ResumeRequestSerializer, SubmissionSerializer
from apps.operations.lifecycle import State
from apps.operations.models import Study
from apps.operations.requests import access
from apps.operations.studies import comparison
from apps.operations.studies import services as studies
from apps.operations.studies.designs import in_order
from apps.operations.studies.rows import BestJson, StudyDetailJson, StudyJson, StudyRow, Trial
from trainops.http.asking import body_of, person, query_of
from trainops.http.etags import with_etag
from trainops.http.pagination import NewestFirst
from trainops.http.serializers import StrictSerializer
from trainops.plain import Config


class StudySubmissionSerializer(SubmissionSerializer):
    """What all operations share, and which values are tried."""

    design = serializers.DictField(
        help_text="values: {path in config: list, or {low, high, log, whole}}, conditions: {path: "
        "{path, values}}, method: grid, random, qmc, tpe or cmaes, samples, seed, parallel, "
        "max_seconds, further_objectives: [{metric, mode}], pruner: {method, metric, mode, "
        "min_reports, min_trials, reduction}, walk_forward: {folds, in_sample, anchored}"
    )
    metric = serializers.CharField(
        max_length=80, required=False, allow_blank=True, default="",
        help_text="Objective: dotted path in the result; by default that of the kind.",
    )  # fmt: skip
    mode = serializers.ChoiceField(
        choices=["min", "max"], required=False, allow_blank=True, default=""
    )


class StudySubmissionFields(SubmissionFields):
    """The validated values of StudySubmissionSerializer."""

    design: Config
    metric: str
    mode: str


class StudyQuery(StrictSerializer):
    owner = serializers.CharField(required=False, help_text="Username, or `me`.")


class BestSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    value = serializers.FloatField()
    values = serializers.DictField(help_text="Values of the trial, by path in the config.")


class StudySerializer(serializers.Serializer[Any]):
    """One study, as lists show it."""

    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.CharField()
    recipe = serializers.CharField(allow_blank=True)
    project = serializers.CharField(allow_blank=True)
    owner = serializers.CharField(allow_null=True)
    metric = serializers.CharField(help_text="Objective: dotted path in the result.")
    mode = serializers.ChoiceField(choices=["min", "max"])
    num_planned = serializers.IntegerField(help_text="Number of planned operations.")
    num_trials = serializers.IntegerField(
        help_text="Number of trials; 0 in a walk-forward analysis."
    )
    counts = serializers.DictField(help_text="Number of operations by state.")
    percent = serializers.FloatField()
    is_active = serializers.BooleanField(
        help_text="Whether an operation has not ended; for a single study also whether one is "
        "still to be submitted."
    )
    created_at = serializers.DateTimeField()
    stopped_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which submission was stopped."
    )


@extend_schema_serializer(deprecate_fields=["id", "state"])
class LineSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    status = serializers.ChoiceField(choices=State.choices)
    id = serializers.CharField(help_text="Deprecated alias of `operation_id`.")
    name = serializers.CharField()
    state = serializers.ChoiceField(
        choices=State.choices, help_text="Deprecated alias of `status`."
    )
    reason = serializers.CharField(allow_blank=True, help_text="PRUNED: stopped by the pruner.")
    stop_requested = serializers.ChoiceField(choices=["cancel", "kill"], allow_blank=True)
    step = serializers.IntegerField()
    total_steps = serializers.IntegerField()
    percent = serializers.FloatField()
    study_values = serializers.DictField(help_text="Values of the trial, by path in the config.")
    fold = serializers.IntegerField(
        help_text="Fold of a walk-forward analysis, from 1; otherwise 0."
    )
    is_test = serializers.BooleanField(
        help_text="Whether it is the out-of-sample test of its fold."
    )
    value = serializers.FloatField(allow_null=True, help_text="Value of the objective.")
    figures = serializers.DictField(help_text="Further figures of the result.")


class ChosenSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    start = serializers.DateField()
    split = serializers.DateField(help_text="First day out of sample.")
    end = serializers.DateField(help_text="First day after the fold.")
    values = serializers.DictField(allow_null=True)
    in_sample = serializers.FloatField(allow_null=True)
    out_of_sample = serializers.FloatField(allow_null=True)
    operation_id = serializers.CharField(allow_null=True)


class StudyDetailSerializer(StudySerializer):
    config = serializers.DictField(help_text="Shared config, as submitted.")
    design = serializers.DictField()
    left_out = serializers.ListField(
        child=serializers.DictField(), help_text="Invalid combinations of values, with the reason."
    )
    max_seconds = serializers.FloatField(
        allow_null=True, help_text="Compute time after which no trial is submitted."
    )
    seconds_spent = serializers.FloatField(
        help_text="Compute time of ended attempts, also of deleted trials."
    )
    best = BestSerializer(allow_null=True)
    front = serializers.ListField(
        child=serializers.CharField(),
        help_text="Operations of the Pareto front; empty with one objective.",
    )
    folds = ChosenSerializer(many=True)
    operations = LineSerializer(many=True, help_text="Operations by fold, the best first.")


class StudyExtensionSerializer(StrictSerializer):
    trials = serializers.IntegerField(min_value=1, help_text="Number of further trials.")
    seconds = serializers.FloatField(
        min_value=0, required=False, default=0,
        help_text="Further compute time, if the study limits it.",
    )  # fmt: skip


class StudyResumeSerializer(StrictSerializer):
    accept_inexact = ResumeRequestSerializer().fields["accept_inexact"]


class StudyCountSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    num_operations = serializers.IntegerField()


class StudiesView(APIView):
    pagination_class = NewestFirst
    ordering_fields = ("name",)

    @extend_schema(
        operation_id="studies_list",
        parameters=[StudyQuery],
        responses=StudySerializer(many=True),
    )
    @with_etag
    def get(self, request: Request) -> Response:
        """List studies, latest first."""
        query = query_of(request, StudyQuery, is_paged=True)
        found = Study.objects.all()
        if owner := query.get("owner"):
            username = request.user.get_username() if owner == "me" else owner
            found = found.filter(owner__username=username)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(comparison.rows_of(found), request, self)
        progress = comparison.progress_by_study(page)
        return paginator.get_paginated_response([described(r, progress[r["id"]]) for r in page])

    @extend_schema(
        operation_id="studies_create",
        request=StudySubmissionSerializer,
        responses={202: StudyDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        """Submit the first trials of a study; with an error none. Others follow as they end."""
        wanted = body_of(request, StudySubmissionSerializer)
        study = studies.create(
            **wanted, owner=person(request), idempotency_key=idempotency_key(request)
        )
        address = reverse("api-study", args=[study.pk])
        return Response(detail(study), status=202, headers={"Location": address})


class StudyView(APIView):
    @extend_schema(operation_id="studies_get", responses=StudyDetailSerializer)
    @with_etag
    def get(self, request: Request, study_id: str) -> Response:
        """Return a study with its operations."""
        return Response(detail(studies.get(study_id)))

    @extend_schema(operation_id="studies_delete", responses={200: StudyCountSerializer})
    def delete(self, request: Request, study_id: str) -> Response:
        """Delete a study with all its operations, if none of them is active."""
        _require(study_id, request, "delete")
        number = studies.delete(study_id=study_id, actor=person(request))
        return _count(f"Study {study_id} was deleted.", number)


COUNTED = {200: StudyCountSerializer}


class CancelStudyView(APIView):
    @extend_schema(operation_id="studies_cancel", request=None, responses=COUNTED)
    def post(self, request: Request, study_id: str) -> Response:
        """Cancel all active operations of the study; no more are submitted."""
        body_of(request)
        _require(study_id, request, "cancel")
        number = studies.cancel(study_id=study_id, actor=person(request))
        return _count(f"Cancelling {number} operations.", number)


class KillStudyView(APIView):
    @extend_schema(operation_id="studies_kill", request=None, responses=COUNTED)
    def post(self, request: Request, study_id: str) -> Response:
        """Kill all active operations of the study; no more are submitted."""
        body_of(request)
        _require(study_id, request, "kill")
        number = studies.kill(study_id=study_id, actor=person(request))
        return _count(f"Killing {number} operations.", number)


class ResumeStudyView(APIView):
    @extend_schema(operation_id="studies_resume", request=StudyResumeSerializer, responses=COUNTED)
    def post(self, request: Request, study_id: str) -> Response:
        """Resume failed and cancelled operations; those without a checkpoint restart."""
        wanted = body_of(request, StudyResumeSerializer)
        _require(study_id, request, "resume")
        number = studies.resume(study_id=study_id, actor=person(request), **wanted)
        return _count(f"Resuming {number} operations.", number)


class ExtendStudyView(APIView):
    @extend_schema(
        operation_id="studies_extend", request=StudyExtensionSerializer, responses=COUNTED
    )
    def post(self, request: Request, study_id: str) -> Response:
        """Continue the study with more trials."""
        wanted = body_of(request, StudyExtensionSerializer)
        _require(study_id, request, "extend")
        number = studies.extend(study_id=study_id, actor=person(request), **wanted)
        return _count(f"Submitted {number} operations; others follow as they end.", number)


def described(row: StudyRow, progress: comparison.StudyProgress) -> StudyJson:
    return {
        "id": row["id"],
        "name": row["name"],
        "kind": row["kind"],
        "recipe": row["recipe"],
        "project": row["project"],
        "metric": row["metric"],
        "mode": row["mode"],
        "num_planned": row["num_planned"],
        "num_trials": row["num_trials"],
        "created_at": row["created_at"],
        "stopped_at": row["stopped_at"],
        "owner": row["owner_name"],
        "counts": progress.counts,
        "percent": progress.percent,
        "is_active": progress.is_active,
    }


def detail(study: Study) -> StudyDetailJson:
    """Return one study with everything there is to say about it."""
    lines = comparison.lines(study)
    best = comparison.best_line(lines)
    front = comparison.front(study, lines)
    row = comparison.rows_of(Study.objects.filter(pk=study.pk)).get()
    return {
        **described(row, comparison.progress_of(study, lines)),
        "config": study.config,
        "design": in_order(study.design),
        "left_out": study.left_out,
        "max_seconds": study.max_seconds,
        "seconds_spent": study.seconds_spent,
        "best": _best(best),
        "front": [line["id"] for line in front],
        "folds": comparison.chosen(study, lines),
        "operations": lines,
    }


def _best(trial: Trial | None) -> BestJson | None:
    if trial is None:
        return None
    return {"operation_id": trial["id"], "value": trial["value"], "values": trial["study_values"]}


def _require(study_id: str, request: Request, action: str) -> None:
    access.require_study(studies.get(study_id), request.user, action)


def _count(message: str, number: int) -> Response:
    return Response({"message": message, "num_operations": number})
