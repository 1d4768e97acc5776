from django.apps import AppConfig
from django.db.models.signals import pre_delete


class WorkersConfig(AppConfig):
    name = "apps.workers"
    label = "workers"

    def ready(self) -> None:
        # Models load after the apps; bootstep connects itself to Celery.
        from django.contrib.auth.models import User  # noqa: PLC0415

        from apps.operations.scheduling import queue_status  # noqa: PLC0415
        from apps.workers import bootstep, fleet, registry  # noqa: F401, PLC0415

        queue_status.register(fleet.serving_workers, fleet.lock)
        forget = registry.forget_user
        pre_delete.connect(forget, sender=User, dispatch_uid="workers.forget_user")
