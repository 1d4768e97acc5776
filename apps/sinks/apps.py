from django.apps import AppConfig
from django.conf import settings


class SinksConfig(AppConfig):
    name = "apps.sinks"
    label = "sinks"

    def ready(self) -> None:
        from apps.operations import outbox  # noqa: PLC0415 - models load after the apps
        from apps.sinks import services  # noqa: PLC0415

        if settings.SINKS:
            outbox.subscribe(outbox.Subscriber("sinks", services.operation_moved, services.WHATS))
