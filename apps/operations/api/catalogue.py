"""What can be asked for: kinds and recipes, with the JSON Schemas of their configs."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.filters import RecipeQuery
from trainops.http.asking import query_of
from trainops.http.envelope import Page
from trainops.kind import KINDS
from trainops.recipes import recipes


class KindSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment] # a field of that name
    description = serializers.CharField()
    unit = serializers.CharField(help_text="Name of one step.")
    json_schema = serializers.DictField(help_text="JSON Schema of the config.")


class RecipeSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment] # a field of that name
    description = serializers.CharField()
    json_schema = serializers.DictField(help_text="JSON Schema of config.parameters.")
    example = serializers.DictField(help_text="Valid config, except for dataset ids.")


class KindsView(APIView):
    @extend_schema(operation_id="kinds_list", responses=KindSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the kinds of operations to submit, with the JSON Schemas of their configs."""
        query_of(request)
        rows = [
            {
                "kind": kind,
                "label": engine.label,
                "description": engine.description,
                "unit": engine.unit,
                "json_schema": engine.json_schema(),
            }
            for kind, engine in KINDS.items()
            if engine.is_computed
        ]
        return Response(Page(rows, len(rows)))


class RecipesView(APIView):
    @extend_schema(
        operation_id="recipes_list",
        parameters=[RecipeQuery],
        responses=RecipeSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List the recipes with the JSON Schemas of their parameters."""
        query = query_of(request, RecipeQuery)
        rows = [
            {
                "name": recipe.name,
                "kind": recipe.kind,
                "label": recipe.label,
                "description": recipe.description,
                "json_schema": recipe.json_schema(),
                "example": dict(recipe.example),
            }
            for recipe in recipes(query.get("kind")).values()
        ]
        return Response(Page(rows, len(rows)))
