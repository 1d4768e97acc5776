"""Stands under /api/."""

from django.urls import path
from drf_spectacular.views import SpectacularAPIView

from trainops.http.api import MeView, TokensView, TokenView
from trainops.http.audit_api import AuditView
from trainops.http.user_api import (
    UserPasswordView,
    UserSecondFactorView,
    UsersView,
    UserTokensView,
    UserTokenView,
    UserView,
)

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("v1/audit", AuditView.as_view(), name="api-audit"),
    path("v1/me", MeView.as_view(), name="api-me"),
    path("v1/users", UsersView.as_view(), name="api-users"),
    path("v1/users/<str:username>", UserView.as_view(), name="api-user"),
    path("v1/users/<str:username>/password", UserPasswordView.as_view(), name="api-user-password"),
    path(
        "v1/users/<str:username>/second-factor",
        UserSecondFactorView.as_view(),
        name="api-user-second-factor",
    ),
    path("v1/users/<str:username>/tokens", UserTokensView.as_view(), name="api-user-tokens"),
    path(
        "v1/users/<str:username>/tokens/<str:token_id>",
        UserTokenView.as_view(),
        name="api-user-token",
    ),
    path("v1/tokens", TokensView.as_view(), name="api-tokens"),
    path("v1/tokens/<str:token_id>", TokenView.as_view(), name="api-token"),
]
