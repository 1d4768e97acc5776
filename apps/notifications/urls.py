"""Stands under /api/v1/."""

from django.urls import path

from apps.notifications.api import DeliveriesView, RetryView, RulesView, RuleView, TestView

RULE = "notifications/rules/<int:rule_id>"

urlpatterns = [
    path("notifications/rules", RulesView.as_view(), name="api-notification-rules"),
    path(RULE, RuleView.as_view(), name="api-notification-rule"),
    path(f"{RULE}/test", TestView.as_view(), name="api-notification-rule-test"),
    path("notifications/deliveries", DeliveriesView.as_view(), name="api-deliveries"),
    path(
        "notifications/deliveries/<int:delivery_id>/retry",
        RetryView.as_view(),
        name="api-delivery-retry",
    ),
]
