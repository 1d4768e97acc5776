from django.apps import AppConfig


class InstallationConfig(AppConfig):
    name = "apps.installation"
    label = "installation"
