from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "apps.operations"
    label = "operations"

    def ready(self) -> None:
        from apps.checkpoints import owners  # noqa: PLC0415 - models load after the apps
        from apps.datasets import usage  # noqa: PLC0415
        from apps.operations.checkpoint_owners import Operations  # noqa: PLC0415
        from apps.operations.models import DatasetUse  # noqa: PLC0415

        owners.register(Operations())
        usage.register(DatasetUse.active_users_of)
