from django.apps import AppConfig
from django.db.models.signals import pre_save


class NotificationsConfig(AppConfig):
    name = "apps.notifications"
    label = "notifications"

    def ready(self) -> None:
        from django.contrib.auth.models import User  # noqa: PLC0415 - models load after the apps

        from apps.notifications import services  # noqa: PLC0415
        from apps.operations import outbox  # noqa: PLC0415

        outbox.subscribe(
            outbox.Subscriber("notifications", services.notify_of, frozenset(services.EVENT_FIELDS))
        )
        pre_save.connect(services.user_saved, sender=User)
