"""Pages of a list in any order: by keyset where an index serves it, else by position."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import OrderBy
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from apps.operations.api.rows import ROW_FIELDS, rows_of
from apps.operations.models import OperationQuerySet
from apps.operations.search.by_value import leading
from apps.operations.search.sorting import FORM, is_sort, ordering
from trainops.http.pagination import CURSOR, ORDERING, NewestFirst, PageCursor

if TYPE_CHECKING:
    from rest_framework.views import APIView

MAX_POSITION = 1_000_000


class SortedPages(NewestFirst):
    """Pages of the operations that `rows_of` returns for ROW_FIELDS.

    `ordering` also takes a metric or a config field; the cursor holds a position then.
    """

    position = 0

    def __init__(self, served: OperationQuerySet | None = None) -> None:
        """`served`: the rows, if an index finds them in the order of the list.

        Else their conditions are compared with many operations that are not found.
        """
        self.served = served

    def _ordering(self, request: Request, view: "APIView | None") -> str:
        given = request.query_params.get(ORDERING, self.default_ordering)
        fields = (self.default_ordering.lstrip("-"), *getattr(view, "ordering_fields", ()))
        self.is_by_position = given.removeprefix("-") not in fields
        if not self.is_by_position:
            return super()._ordering(request, view)
        if not is_sort(given):
            allowed = ", ".join((*fields, FORM))
            raise ValidationError({ORDERING: f"got {given[:60]!r}; allowed: {allowed}"})
        return given

    def _fetch(self, queryset: Any) -> list[object]:
        if not self.is_by_position:
            self.served = self.served if self.ordering == self.default_ordering else None
            return super()._fetch(queryset if self.served is None else self.served)
        self.served = None
        self.position = self._position()
        some = leading(queryset, self.ordering, self.position + self.limit + 1)
        return self._ordered(some, ordering(self.ordering))

    def _ordered(self, queryset: Any, by: Sequence[str | OrderBy]) -> list[object]:
        first, last = self.position, self.position + self.limit + 1
        if self.served is not None:
            return list(queryset.order_by(*by)[first:last])
        found = queryset.order_by(*by).values("pk")[first:last]  # see `window`
        return list(rows_of(*ROW_FIELDS).filter(pk__in=found).order_by(*by))

    def _position(self) -> int:
        value = self.cursor.value if self.cursor else 0
        if not isinstance(value, int) or not 0 <= value <= MAX_POSITION:
            raise ValidationError({CURSOR: "is not a cursor of this list; use its links"})
        return value

    def _next(self) -> str | None:
        if not self.is_by_position:
            return super()._next()
        return self._at(self.position + self.limit) if self.has_more else None

    def _previous(self) -> str | None:
        if not self.is_by_position:
            return super()._previous()
        return self._at(max(0, self.position - self.limit)) if self.position else None

    def _at(self, position: int) -> str:
        return replace_query_param(
            self.url, CURSOR, PageCursor(self.ordering, False, position, "").encode()
        )

    def get_schema_operation_parameters(self, view: "APIView") -> list[dict[str, object]]:
        parameters: list[dict[str, object]] = super().get_schema_operation_parameters(view)
        return [_with_any_text(each) if each["name"] == ORDERING else each for each in parameters]


def _with_any_text(parameter: Mapping[str, object]) -> dict[str, object]:
    schema = {"type": "string", "pattern": r"^-?(best\()?[^\W\d][\w./-]*\)?$", "maxLength": 80}
    return {**parameter, "description": f"Order: {FORM}.", "schema": schema}
