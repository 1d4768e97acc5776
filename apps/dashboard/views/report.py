"""The report of a finished backtest as files: HTML, JSON and CSV."""

import json

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string

from apps.dashboard import report
from apps.dashboard.gate import needs
from apps.operations import services
from apps.operations.errors import OperationNotFound
from apps.operations.models import Operation

TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "trades.csv": "text/csv; charset=utf-8",
    "equity.csv": "text/csv; charset=utf-8",
}


@needs()
def download(request: HttpRequest, operation_id: str, form: str) -> HttpResponse:
    try:
        operation = services.get(operation_id)
    except OperationNotFound as refusal:
        raise Http404(str(refusal)) from None
    result = report.of(operation)
    if result is None:
        raise Http404("It has no report: only a completed backtest has one.")
    if form not in TYPES:
        raise Http404(f"There is no report.{form}; there are: {', '.join(TYPES)}.")
    answer = HttpResponse(_content(operation, result, form), content_type=TYPES[form])
    answer["Content-Disposition"] = f'attachment; filename="{operation_id}-report.{form}"'
    return answer


def _content(operation: Operation, result: report.Result, form: str) -> str:
    if form == "json":
        return json.dumps(result, indent=2, ensure_ascii=False)
    if form == "trades.csv":
        return report.trades_csv(result)
    if form == "equity.csv":
        return report.equity_csv(result)
    context = report.context(result)
    return render_to_string(
        "dashboard/report/file.html",
        context
        | {
            "operation": operation,
            "equity_line": report.line(context["charts"]["equity"]),
            "drawdown_line": report.line(context["charts"]["drawdown"], height=120),
        },
    )
