from django.apps import AppConfig
from django.db.models.signals import post_delete, post_migrate, pre_save


class OperationsConfig(AppConfig):
    name = "apps.operations"
    label = "operations"

    def ready(self) -> None:
        from django.contrib.auth.models import User  # noqa: PLC0415 - models load after the apps

        from apps.checkpoints import owners  # noqa: PLC0415
        from apps.datasets import usage  # noqa: PLC0415
        from apps.operations import outbox  # noqa: PLC0415
        from apps.operations.checkpoint_owners import Operations  # noqa: PLC0415
        from apps.operations.lifecycle import FINISHED  # noqa: PLC0415
        from apps.operations.models import DatasetUse, Operation  # noqa: PLC0415
        from apps.operations.search import views  # noqa: PLC0415
        from apps.operations.studies import advancing  # noqa: PLC0415
        from apps.operations.subtasks import services as subtasks  # noqa: PLC0415

        outbox.subscribe(outbox.Subscriber("studies", advancing.operation_ended, FINISHED))
        outbox.subscribe(outbox.Subscriber("subtasks", subtasks.operation_ended, FINISHED))
        post_delete.connect(
            lambda instance, **_: advancing.operation_deleted(instance),
            sender=Operation, weak=False,
        )  # fmt: skip
        pre_save.connect(views.user_saved, sender=User)
        post_migrate.connect(lambda **_: outbox.create_cursors(), sender=self, weak=False)
        owners.register(Operations())
        usage.register(DatasetUse.active_users_of)
