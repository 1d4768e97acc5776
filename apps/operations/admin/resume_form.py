"""The dialog of a resume in the admin: asks where the resume would not be exact."""

from typing import Any

from django import forms
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldBooleanWidget

from apps.checkpoints import services as checkpoints
from apps.operations.models import Operation
from apps.operations.requests import changed_code
from trainops.admin_base import id_in
from trainops.runtime import provenance


class ResumeForm(BaseDialogForm):
    """Has a box if files of the recipe were changed, or the config requires an exact resume."""

    def __init__(self, request: Any, object_id: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, object_id, *args, **kwargs)
        operation = Operation.objects.filter(pk=id_in(object_id)).first()
        healthy = checkpoints.to_resume_from(operation.pk) if operation else []
        if operation is None or not healthy:
            return  # the resume is refused, and says why
        changed = changed_code.of(operation, healthy[0])
        if changed:
            help_text = (
                "These files of the recipe on this server differ from those of the checkpoint: "
                f"{provenance.named(changed)}."
            )
        elif operation.config.get("exact") == "required":
            help_text = "The config requires an exact resume: otherwise it fails, and says why."
        else:
            return
        self.fields["accept_inexact"] = forms.BooleanField(
            label="Resume even if that is not exact",
            help_text=help_text,
            required=bool(changed),
            widget=UnfoldBooleanWidget,
        )

    @property
    def accepts_inexact(self) -> bool:
        return bool(self.cleaned_data.get("accept_inexact"))
