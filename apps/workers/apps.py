from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "apps.workers"
    label = "workers"

    def ready(self) -> None:
        from apps.operations.scheduling import queue_status  # noqa: PLC0415 - models load after the apps
        from apps.workers import bootstep, fleet  # noqa: F401, PLC0415 - one connects itself to Celery

        queue_status.register(fleet.serving_workers, fleet.lock)
