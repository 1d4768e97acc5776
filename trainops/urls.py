from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from trainops.http import sign_in

urlpatterns = [
    # The page asks for the old password under the limits of a sign-in; the admin's does not.
    path("admin/password_change/", RedirectView.as_view(url="/account/password")),
    path("admin/login/", sign_in.of_admin),
    path("admin/", admin.site.urls),
    path("api/", include("trainops.http.urls")),
    path("api/v1/", include("apps.datasets.urls")),
    path("api/v1/", include("apps.checkpoints.urls")),
    path("api/v1/", include("apps.operations.api.urls")),
    path("api/v1/", include("apps.notifications.urls")),
    path("api/v1/", include("apps.workers.urls")),
    path("", include("apps.workers.metrics_urls")),
    path("", include("apps.dashboard.urls")),
]
handler400 = "trainops.http.handlers.bad_request"
handler403 = "trainops.http.handlers.permission_denied"
handler404 = "trainops.http.handlers.not_found"
handler500 = "trainops.http.handlers.server_error"
