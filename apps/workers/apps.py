from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "apps.workers"
    label = "workers"

    def ready(self) -> None:
        from apps.workers import bootstep  # noqa: F401, PLC0415 - connects itself to Celery
