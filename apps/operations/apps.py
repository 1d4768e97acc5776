from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "apps.operations"
    label = "operations"

    def ready(self) -> None:
        from apps.datasets import usage  # noqa: PLC0415 - models load after the apps
        from apps.operations.models import DatasetUse  # noqa: PLC0415

        usage.register(DatasetUse.active_users_of)
