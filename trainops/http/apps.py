from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccessConfig(AppConfig):
    name = "trainops.http"
    label = "access"
    verbose_name = "Access"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from trainops.http import access_log, schema_extensions  # noqa: F401, PLC0415 - need apps
        from trainops.http.roles import ensure_roles  # noqa: PLC0415 - needs the apps

        access_log.connect()
        post_migrate.connect(
            lambda **_: ensure_roles(), sender=self, dispatch_uid="access.ensure_roles", weak=False
        )
