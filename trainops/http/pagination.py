"""Lists by keyset: exact and equally fast on the first page and the thousandth, without a COUNT.

A cursor holds the ordering, the direction and the (value, id) of the row at the page's edge.
Rows that arrive or go meanwhile shift nothing.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

import orjson
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import connections
from django.db.models import Q, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from trainops.http.envelope import Page
from trainops.http.numbers import whole_number
from trainops.http.schema import page_schema

if (
    TYPE_CHECKING
):  # importing it here would be a circle: it reads the settings that name this module
    from rest_framework.views import APIView

CURSOR, LIMIT, ORDERING, COUNT = "cursor", "limit", "ordering", "count"


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The edge of a page: rows beyond (value, id) in the direction of `ordering`, or backwards."""

    ordering: str
    backwards: bool
    value: Any  # of the field in `ordering`: text, number or time
    id: object

    def encode(self) -> str:
        parts = [self.ordering, self.backwards, self.value, self.id]
        return urlsafe_b64encode(orjson.dumps(parts, default=str)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "PageCursor":
        """Raises ValidationError for anything that `encode` did not write."""
        try:
            padded = text.encode() + b"=" * (-len(text) % 4)
            ordering, backwards, value, row_id = orjson.loads(urlsafe_b64decode(padded))
            if isinstance(ordering, str) and isinstance(backwards, bool):
                return cls(ordering, backwards, value, row_id)
        except (ValueError, TypeError):
            pass
        raise ValidationError({CURSOR: f"{text[:60]!r} is not a cursor; use the links of the list"})


class NewestFirst(BasePagination):
    """Pages of (-created_at, -id), or of another field that the view lists in `ordering_fields`.

    Those fields must not be null. Rows may be model instances or dicts (`values()`) that hold the
    field and the id. `total_count` is given where it costs nothing (everything is on one page),
    where the request says `count=true`, and always where `always_count` is set; else it is null.
    """

    page_size: ClassVar[int] = 50
    max_page_size: ClassVar[int] = 500
    default_ordering: ClassVar[str] = "-created_at"
    always_count: ClassVar[bool] = False

    def paginate_queryset(
        self, queryset: Any, request: Request, view: "APIView | None" = None
    ) -> list[Any]:
        self.url = request.build_absolute_uri()
        self.ordering = self._ordering(request, view)
        self.cursor = self._cursor(request)
        self.limit = self._limit(request)
        wants_count = self._wants_count(request) or self.always_count
        rows = self._fetch(queryset)
        self.rows = rows[: self.limit]
        self.has_more = len(rows) > self.limit
        if self.cursor and self.cursor.backwards:
            self.rows.reverse()
        self.total_count: int | None = None
        if not self.cursor and not self.has_more:
            self.total_count = len(self.rows)
        elif wants_count:
            self.total_count = queryset.count()
        return self.rows

    def get_paginated_response(self, data: object) -> Response:
        return Response(Page(data, self.total_count, self._next(), self._previous()))

    def _fetch(self, queryset: QuerySet[Any]) -> list[object]:
        """One page and one row more, which tells whether there is another page."""
        field, descending = self.ordering.lstrip("-"), self.ordering.startswith("-")
        if self.cursor:
            descending ^= self.cursor.backwards
            queryset = queryset.filter(self._beyond(queryset, field, descending))
        sign = "-" if descending else ""
        return self._ordered(queryset, (f"{sign}{field}", f"{sign}pk"))

    def _ordered(self, queryset: QuerySet[Any], by: Sequence[Any]) -> list[object]:
        return list(queryset.order_by(*by)[: self.limit + 1])

    def _beyond(self, queryset: QuerySet[Any], field: str, descending: bool) -> Q:
        cursor = cast(PageCursor, self.cursor)
        value = _value_of(queryset, field, cursor.value)
        row_id = _value_of(queryset, "pk", cursor.id)
        if value is None or row_id is None:
            raise ValidationError(
                {CURSOR: "is not a cursor of this list; use the links of the list"}
            )
        side = "lt" if descending else "gt"
        beyond = Q(**{f"{field}__{side}": value}) | Q(**{field: value, f"pk__{side}": row_id})
        return Q(**{f"{field}__{side}e": value}) & beyond  # the first half is what an index serves

    def _next(self) -> str | None:
        backwards = bool(self.cursor and self.cursor.backwards)
        return self._link(self.rows[-1:], False) if self.has_more or backwards else None

    def _previous(self) -> str | None:
        if not self.cursor or (self.cursor.backwards and not self.has_more):
            return None
        return self._link(self.rows[:1], True)

    def _link(self, edge: Sequence[object], backwards: bool) -> str | None:
        if not edge:
            return remove_query_param(self.url, CURSOR)
        field = self.ordering.lstrip("-")
        cursor = PageCursor(self.ordering, backwards, _get(edge[0], field), _id(edge[0]))
        return replace_query_param(self.url, CURSOR, cursor.encode())

    def _ordering(self, request: Request, view: "APIView | None") -> str:
        allowed = _orderings(view, self.default_ordering)
        given = request.query_params.get(ORDERING, self.default_ordering)
        if given not in allowed:
            raise ValidationError(
                {ORDERING: f"{given[:60]!r} is not allowed; allowed: {', '.join(allowed)}"}
            )
        return given

    def _cursor(self, request: Request) -> PageCursor | None:
        text = request.query_params.get(CURSOR)
        if not text:
            return None
        cursor = PageCursor.decode(text)
        if cursor.ordering != self.ordering:
            raise ValidationError({CURSOR: f"belongs to a list ordered by {cursor.ordering!r}"})
        return cursor

    def _limit(self, request: Request) -> int:
        given = request.query_params.get(LIMIT, str(self.page_size))
        if limit := whole_number(given, 1, self.max_page_size):
            return limit
        raise ValidationError(
            {LIMIT: f"{given[:60]!r} is not a whole number from 1 to {self.max_page_size}"}
        )

    def _wants_count(self, request: Request) -> bool:
        given = request.query_params.get(COUNT, "false")
        if given not in ("true", "false"):
            raise ValidationError({COUNT: f"{given[:60]!r} is not allowed; allowed: true, false"})
        return given == "true"

    def get_paginated_response_schema(self, schema: Any) -> Any:
        return page_schema(schema)

    def get_schema_operation_parameters(self, view: "APIView") -> list[dict[str, object]]:
        limit = {"type": "integer", "minimum": 1, "maximum": self.max_page_size}
        orderings = {"type": "string", "enum": _orderings(view, self.default_ordering)}
        return [
            _parameter(CURSOR, {"type": "string"}, "Cursor from the links of the previous page."),
            _parameter(LIMIT, limit | {"default": self.page_size}, "Number of rows per page."),
            _parameter(ORDERING, orderings, "Order; descending with a minus sign."),
            _parameter(COUNT, {"type": "boolean"}, "Also count all rows (requires a scan)."),
        ]


class NewestFirstCounted(NewestFirst):
    """For lists that stay small: the count is always given."""

    always_count = True


def _orderings(view: "APIView | None", default: str) -> list[str]:
    fields = [default.lstrip("-"), *getattr(view, "ordering_fields", ())]
    return [f"{sign}{field}" for field in dict.fromkeys(fields) for sign in ("-", "")]


def _parameter(name: str, schema: Mapping[str, object], description: str) -> dict[str, object]:
    return {"name": name, "in": "query", "description": description, "schema": dict(schema)}


def _value_of(queryset: QuerySet[Any], name: str, given: object) -> object:
    """Return what a cursor gives as a value of this field; None where the database takes it not."""
    options = queryset.model._meta
    field = options.pk if name == "pk" else options.get_field(name)
    try:
        value = field.to_python(given)
        if isinstance(value, datetime) and value.tzinfo is None:
            return None
        field.get_db_prep_value(value, connections[queryset.db])
    except (DjangoValidationError, ValueError, TypeError, OverflowError):
        return None
    return None if isinstance(value, str) and "\x00" in value else value


def _get(row: object, field: str) -> object:
    return row[field] if isinstance(row, Mapping) else getattr(row, field)


def _id(row: Any) -> object:
    return row["id"] if isinstance(row, Mapping) else row.pk
