from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "apps.notifications"
    label = "notifications"

    def ready(self) -> None:
        from apps.notifications import services  # noqa: PLC0415 - models load after the apps
        from apps.operations import outbox  # noqa: PLC0415

        outbox.subscribe(
            outbox.Subscriber("notifications", services.notify_of, frozenset(services.EVENT_FIELDS))
        )
