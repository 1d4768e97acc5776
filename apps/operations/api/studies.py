"""The doors for studies: submit, list, compare, cancel, kill, resume, delete."""

from collections.abc import Mapping
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.operations import KEY, idempotency_key
from apps.operations.lifecycle import State
from apps.operations.models import Study
from apps.operations.requests import access
from apps.operations.serializers import SubmissionSerializer
from apps.operations.studies import comparison
from apps.operations.studies import services as studies
from trainops.http.asking import body_of, person, query_of
from trainops.http.pagination import NewestFirst
from trainops.http.serializers import StrictSerializer


class StudySubmissionSerializer(SubmissionSerializer):
    """What all operations share, and which values are tried."""

    design = serializers.DictField(
        help_text="values: {path in config: list, or for random {low, high, log, whole}}, method: "
        "grid or random, samples, seed, walk_forward: {folds, in_sample, anchored}"
    )
    metric = serializers.CharField(
        max_length=80, required=False, allow_blank=True, default="",
        help_text="Dotted path in the result; by default sharpe of backtests, best.value of "
        "trainings.",
    )  # fmt: skip
    mode = serializers.ChoiceField(
        choices=["min", "max"], required=False, allow_blank=True, default=""
    )


class StudyQuery(StrictSerializer):
    owner = serializers.CharField(required=False, help_text="A username, or `me`.")


class BestSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    value = serializers.FloatField()
    values = serializers.DictField(help_text="What it tried, by path in config.")


class StudySerializer(serializers.Serializer[Any]):
    """One study, as lists show it."""

    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.CharField()
    recipe = serializers.CharField(allow_blank=True)
    owner = serializers.CharField(allow_null=True)
    metric = serializers.CharField(help_text="Dotted path in the result.")
    mode = serializers.ChoiceField(choices=["min", "max"])
    num_planned = serializers.IntegerField(help_text="Operations there are going to be.")
    counts = serializers.DictField(help_text="Operations by state; states that occur.")
    percent = serializers.FloatField()
    is_active = serializers.BooleanField(
        help_text="Some operation has not ended; of one study also: is about to be submitted."
    )
    created_at = serializers.DateTimeField()
    stopped_at = serializers.DateTimeField(allow_null=True, help_text="No more are submitted.")


@extend_schema_serializer(deprecate_fields=["id", "state"])
class LineSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    status = serializers.ChoiceField(choices=State.choices)
    id = serializers.CharField(help_text="Older name of `operation_id`.")
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=State.choices, help_text="Older name of `status`.")
    stop_requested = serializers.ChoiceField(choices=["cancel", "kill"], allow_blank=True)
    step = serializers.IntegerField()
    total_steps = serializers.IntegerField()
    percent = serializers.FloatField()
    study_values = serializers.DictField(help_text="What it tries, by path in config.")
    fold = serializers.IntegerField(help_text="Of a walk-forward, from 1; else 0.")
    is_test = serializers.BooleanField(help_text="Tries what its fold chose.")
    value = serializers.FloatField(allow_null=True, help_text="By which it is judged.")
    figures = serializers.DictField(help_text="Further figures of its result.")


class ChosenSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    start = serializers.DateField()
    split = serializers.DateField(help_text="Chosen on the days before, tried from here on.")
    end = serializers.DateField(help_text="The first day that is in it no more.")
    values = serializers.DictField(allow_null=True)
    in_sample = serializers.FloatField(allow_null=True)
    out_of_sample = serializers.FloatField(allow_null=True)
    operation_id = serializers.CharField(allow_null=True)


class StudyDetailSerializer(StudySerializer):
    config = serializers.DictField(help_text="What all share, as submitted.")
    design = serializers.DictField()
    left_out = serializers.ListField(
        child=serializers.DictField(), help_text="Values that the config refuses, and why."
    )
    best = BestSerializer(allow_null=True)
    folds = ChosenSerializer(many=True)
    operations = LineSerializer(many=True, help_text="By fold, the best first.")


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
    def get(self, request: Request) -> Response:
        """A page of studies, newest first."""
        query = query_of(request, StudyQuery, is_paged=True)
        found = Study.objects.all()
        if owner := query.get("owner"):
            username = request.user.get_username() if owner == "me" else owner
            found = found.filter(owner__username=username)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(comparison.rows_of(found), request, self)
        standings = comparison.standings(page)
        return paginator.get_paginated_response([described(r, standings[r["id"]]) for r in page])

    @extend_schema(
        operation_id="studies_create",
        request=StudySubmissionSerializer,
        responses={202: StudyDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        """Submit an operation for each set of values; all of them, or none."""
        wanted = body_of(request, StudySubmissionSerializer)
        study = studies.create(
            **wanted, owner=person(request), idempotency_key=idempotency_key(request)
        )
        address = reverse("api-study", args=[study.pk])
        return Response(detail(study), status=202, headers={"Location": address})


class StudyView(APIView):
    @extend_schema(operation_id="studies_get", responses=StudyDetailSerializer)
    def get(self, request: Request, study_id: str) -> Response:
        """One study with its operations beside each other."""
        return Response(detail(studies.get(study_id)))

    @extend_schema(operation_id="studies_delete", responses={200: StudyCountSerializer})
    def delete(self, request: Request, study_id: str) -> Response:
        """Delete it with all of its operations. Not while one of them waits or runs."""
        _require(study_id, request, "delete")
        number = studies.delete(study_id=study_id, actor=person(request))
        return _told(f"Study {study_id} is deleted.", number)


COUNTED = {200: StudyCountSerializer}


class CancelStudyView(APIView):
    @extend_schema(operation_id="studies_cancel", request=None, responses=COUNTED)
    def post(self, request: Request, study_id: str) -> Response:
        """Cancel all of its operations that have not ended; no more are submitted."""
        body_of(request)
        _require(study_id, request, "cancel")
        number = studies.cancel(study_id=study_id, actor=person(request))
        return _told(f"{number} operations are being cancelled.", number)


class KillStudyView(APIView):
    @extend_schema(operation_id="studies_kill", request=None, responses=COUNTED)
    def post(self, request: Request, study_id: str) -> Response:
        """Kill all of its operations that have not ended; no more are submitted."""
        body_of(request)
        _require(study_id, request, "kill")
        number = studies.kill(study_id=study_id, actor=person(request))
        return _told(f"{number} operations are being killed.", number)


class ResumeStudyView(APIView):
    @extend_schema(operation_id="studies_resume", request=None, responses=COUNTED)
    def post(self, request: Request, study_id: str) -> Response:
        """Resume those that failed or were cancelled; those without a checkpoint begin anew."""
        body_of(request)
        _require(study_id, request, "resume")
        number = studies.resume(study_id=study_id, actor=person(request))
        return _told(f"{number} operations go on.", number)


def described(row: Mapping[str, Any], standing: comparison.Standing) -> dict[str, Any]:
    shown = {name: row[name] for name in comparison.STUDY_FIELDS}
    return {
        **shown,
        "owner": row["owner_name"],
        "counts": standing.counts,
        "percent": standing.percent,
        "is_active": standing.is_active,
    }


def detail(study: Study) -> dict[str, Any]:
    """Return one study with everything there is to say about it."""
    lines = comparison.lines(study)
    best = comparison.best_line(lines)
    row = comparison.rows_of(Study.objects.filter(pk=study.pk)).get()
    return described(row, comparison.standing_of(study, lines)) | {
        "config": study.config,
        "design": study.design,
        "left_out": study.left_out,
        "best": best
        and {"operation_id": best["id"], "value": best["value"], "values": best["study_values"]},
        "folds": comparison.chosen(study, lines),
        "operations": lines,
    }


def _require(study_id: str, request: Request, action: str) -> None:
    access.require_study(studies.get(study_id), request.user, action)


def _told(message: str, number: int) -> Response:
    return Response({"message": message, "num_operations": number})
