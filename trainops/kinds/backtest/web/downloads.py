"""The report of a finished backtest as files: HTML, JSON and CSV."""

import json

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string

from apps.dashboard.permissions import needs
from apps.dashboard.responses import refused
from apps.operations.errors import OperationNotFound
from apps.operations.files import artifacts, exports
from apps.operations.models import Operation
from apps.operations.requests import services
from trainops.errors import DomainError
from trainops.kinds.backtest.web import report

KIND = "backtest"
TYPES = {"html": "text/html; charset=utf-8", "json": "application/json"}
TABLES = {"trades.csv": "trades", "equity.csv": "equity"}
NAMES = (*TYPES, *TABLES)


@needs()
def download(request: HttpRequest, operation_id: str, form: str) -> HttpResponseBase:
    try:
        operation = services.get(operation_id)
    except OperationNotFound as refusal:
        raise Http404(str(refusal)) from None
    result = report.of(operation) if operation.kind == KIND else None
    if result is None:
        raise Http404("No report: only completed backtests have one.")
    if form not in NAMES:
        raise Http404(f"There is no report.{form}; allowed: {', '.join(NAMES)}.")
    name = f"{operation_id}-report.{form}"
    if form in TABLES:
        return _table(request, operation, TABLES[form], name)
    answer = HttpResponse(_content(operation, result, form), content_type=TYPES[form])
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _table(request: HttpRequest, operation: Operation, table: str, name: str) -> HttpResponseBase:
    """Answer with every row of the final checkpoint, read by a process that may load it."""
    final = artifacts.source(operation.pk)
    if final is None:
        raise Http404("The rows were deleted together with the checkpoints.")
    final.operation = operation
    try:
        exported = exports.table(final, table, person=request.user.get_username())
    except DomainError as refusal:
        return refused(request, refusal)
    return FileResponse(
        exported.file, as_attachment=True, filename=name, content_type="text/csv; charset=utf-8"
    )


def _content(operation: Operation, result: report.Result, form: str) -> str:
    if form == "json":
        return json.dumps(result, indent=2, ensure_ascii=False)
    context = report.context(result)
    return render_to_string(
        "backtest/file.html",
        context
        | {
            "operation": operation,
            "equity_line": report.line(context["charts"]["equity"]),
            "drawdown_line": report.line(context["charts"]["drawdown"], height=120),
        },
    )
