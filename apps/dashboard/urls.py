"""The pages. What a script fetches stands beside the page that it serves."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path

from apps.dashboard.views import (
    account,
    actions,
    checkpoints,
    compare,
    datasets,
    documentation,
    editing,
    estimate,
    listing,
    new,
    notifications,
    operation,
    platform,
    saved_views,
    studies,
    usage,
)
from trainops.kind import KINDS

urlpatterns = [
    path("", listing.operations, name="operations"),
    path("operations/", listing.operations),
    path("operations/live", listing.live, name="operations-live"),
    path("operations/group", listing.group, name="operations-group"),
    path("operations/completions", listing.completed, name="operations-completions"),
    path("operations/views", saved_views.form, name="views"),
    path("operations/views/<int:view_id>/delete", saved_views.delete, name="view-delete"),
    path("operations/new", new.new, name="operation-new"),
    path("operations/new/fields", new.fields, name="operation-new-fields"),
    path("operations/new/editor", new.editor, name="operation-new-editor"),
    path("operations/new/estimate", estimate.estimate, name="operation-new-estimate"),
    path("operations/confirm/<slug:action>", actions.confirm, name="confirm"),
    path("operations/act/<slug:action>", actions.act, name="act"),
    path("operations/<str:operation_id>/", operation.operation, name="operation"),
    path("operations/<str:operation_id>/recover", actions.recover, name="recover"),
    path("operations/<str:operation_id>/edit", editing.edited, name="operation-edit"),
    path("operations/<str:operation_id>/live", operation.live, name="operation-live"),
    path("operations/<str:operation_id>/points", operation.window, name="operation-points"),
    path(
        "operations/<str:operation_id>/points.csv",
        operation.points_file,
        name="operation-points-csv",
    ),
    path("operations/<str:operation_id>/media", operation.media, name="operation-media"),
    path(
        "operations/<str:operation_id>/media/<int:media_id>",
        operation.media_content,
        name="operation-media-content",
    ),
    path("operations/<str:operation_id>/log.txt", operation.log, name="operation-log"),
    path("operations/<str:operation_id>/archive.zip", operation.archive, name="operation-archive"),
    path(
        "operations/<str:operation_id>/files/<str:checkpoint_id>/<str:name>",
        operation.file,
        name="operation-file",
    ),
    *(
        path("operations/<str:operation_id>/", include(kind.urls))
        for kind in KINDS.values()
        if kind.urls
    ),
    path("compare/", compare.compare, name="compare"),
    path("checkpoints/", checkpoints.listed, name="checkpoints"),
    path("checkpoints/confirm-delete", checkpoints.confirm, name="checkpoints-confirm"),
    path("checkpoints/delete", checkpoints.delete, name="checkpoints-delete"),
    path("checkpoints/cleanup", checkpoints.cleanup, name="checkpoints-cleanup"),
    path(
        "checkpoints/<str:checkpoint_id>/confirm-delete",
        actions.confirm_checkpoint,
        name="confirm-checkpoint",
    ),
    path(
        "checkpoints/<str:checkpoint_id>/<slug:action>", actions.on_checkpoint, name="on-checkpoint"
    ),
    path("studies/", studies.listed, name="studies"),
    path("studies/<str:study_id>/", studies.study, name="study"),
    path("studies/<str:study_id>/extend", studies.extend, name="study-extend"),
    path("studies/<str:study_id>/<slug:action>", studies.act, name="study-act"),
    path("workers/", platform.workers, name="workers"),
    path("workers/usage", usage.usage, name="usage"),
    path("workers/usage.csv", usage.usage_file, name="usage-csv"),
    path("workers/<str:worker_id>/<slug:action>", platform.act_on_worker, name="worker-act"),
    path("datasets/", datasets.datasets, name="datasets"),
    path("datasets/upload", datasets.upload, name="dataset-upload"),
    path("datasets/<str:dataset_id>/", datasets.dataset, name="dataset"),
    path("datasets/<str:dataset_id>/delete", datasets.delete, name="dataset-delete"),
    path("notifications/", notifications.notifications, name="notifications"),
    path("notifications/<int:rule_id>/", notifications.rule, name="notification-rule"),
    path(
        "notifications/<int:rule_id>/<slug:action>",
        notifications.act,
        name="notification-rule-act",
    ),
    path(
        "notifications/deliveries/<int:delivery_id>/retry",
        notifications.retry,
        name="delivery-retry",
    ),
    path("datasets/<str:dataset_id>/verify", datasets.verify, name="dataset-verify"),
    path("menu/counts", platform.menu_counts, name="menu-counts"),
    path("settings/", platform.thresholds, name="settings"),
    path("help/keys", platform.keys, name="keys"),
    path("help/tour", platform.tour, name="tour"),
    path("api/docs/", platform.api_docs, name="api-docs"),
    path("docs/", documentation.page, name="docs"),
    path("docs/<path:address>/", documentation.page, name="docs-page"),
    path("docs/<str:name>", documentation.file, name="docs-file"),
    path("account/", account.account, name="account"),
    path("account/password", account.ChangePassword.as_view(), name="password"),
    path("account/tokens/<str:token_id>/revoke", account.revoke, name="token-revoke"),
    path("login/", account.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
