"""The pages. What a script fetches stands beside the page that it serves."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path

from apps.dashboard.views import (
    account,
    actions,
    datasets,
    house,
    listing,
    new,
    operation,
    studies,
)
from trainops.kind import KINDS

urlpatterns = [
    path("", listing.operations, name="operations"),
    path("operations/", listing.operations),
    path("operations/live", listing.live, name="operations-live"),
    path("operations/new", new.new, name="operation-new"),
    path("operations/new/fields", new.fields, name="operation-new-fields"),
    path("operations/confirm/<slug:action>", actions.confirm, name="confirm"),
    path("operations/act/<slug:action>", actions.act, name="act"),
    path("operations/<str:operation_id>/", operation.operation, name="operation"),
    path("operations/<str:operation_id>/recover", actions.recover, name="recover"),
    path("operations/<str:operation_id>/live", operation.live, name="operation-live"),
    path("operations/<str:operation_id>/log.txt", operation.log, name="operation-log"),
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
    path("checkpoints/", house.checkpoints, name="checkpoints"),
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
    path("studies/<str:study_id>/<slug:action>", studies.act, name="study-act"),
    path("workers/", house.workers, name="workers"),
    path("datasets/", datasets.datasets, name="datasets"),
    path("datasets/upload", datasets.upload, name="dataset-upload"),
    path("datasets/<str:dataset_id>/", datasets.dataset, name="dataset"),
    path("datasets/<str:dataset_id>/delete", datasets.delete, name="dataset-delete"),
    path("settings/", house.thresholds, name="settings"),
    path("help/keys", house.keys, name="keys"),
    path("account/", account.account, name="account"),
    path("account/password", account.ChangePassword.as_view(), name="password"),
    path("account/tokens/<str:token_id>/revoke", account.revoke, name="token-revoke"),
    path("login/", account.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
