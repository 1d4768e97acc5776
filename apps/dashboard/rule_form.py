"""The form of a notification rule."""

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.http import QueryDict

from apps.notifications.models import Rule
from apps.notifications.validation import only_user
from apps.operations.attention import CONCERNS
from apps.operations.lifecycle import Reason
from trainops.kind import KINDS

ANY = ("", "any")
CLASSES = {"checkbox": "form-check-input", "select": "form-select"}


class RuleForm(forms.ModelForm):  # type: ignore[type-arg] # no generic class at run time
    """Fields of a rule; the owner is a field for admins only."""

    kind = forms.ChoiceField(required=False)
    reason = forms.ChoiceField(required=False)

    class Meta:
        model = Rule
        fields = (
            "name", "channel", "target", "on_failed", "on_cancelled", "on_completed",
            "on_attention", "kind", "owner", "reason", "tag", "project", "condition", "metric",
            "mode", "points", "digest_hour", "is_active",
        )  # fmt: skip
        labels: ClassVar[dict[str, str]] = {
            "on_failed": "Operation failed",
            "on_cancelled": "Operation cancelled",
            "on_completed": "Operation completed",
            "on_attention": "Operation needs attention",
            "condition": "Alert",
            "points": "N",
            "digest_hour": f"Digest hour ({settings.TIME_ZONE})",
        }

    def __init__(self, data: QueryDict | None, *, user: User, instance: Rule | None = None) -> None:
        rule = instance or Rule(user=user)
        if only := only_user(rule):
            rule.owner = only.get_username()
        super().__init__(data, instance=rule, auto_id="r-%s")
        if only:
            del self.fields["owner"]
        self._offer("kind", [(name, name) for name in KINDS])
        self._offer(
            "reason",
            [
                *(each for each in Reason.choices if each[0]),
                *((each.value, each.label) for each in CONCERNS),
            ],
        )
        for field in self.fields.values():
            kind = getattr(field.widget, "input_type", "text")
            field.widget.attrs["class"] = CLASSES.get(kind, "form-control")

    def _offer(self, name: str, choices: list[Any]) -> None:
        field = self.fields[name]
        field.help_text = ""
        field.choices = [ANY, *choices]  # type: ignore[attr-defined] # a ChoiceField

    @property
    def changes(self) -> dict[str, Any]:
        """The values that differ from those stored; with the owner that the form sets itself."""
        changes = {name: self.cleaned_data[name] for name in self.changed_data}
        return changes if "owner" in self.fields else changes | {"owner": self.instance.owner}

    @property
    def switches(self) -> list[forms.BoundField]:
        """The fields with a box to tick."""
        return [each for each in self if isinstance(each.field, forms.BooleanField)]

    @property
    def others(self) -> list[forms.BoundField]:
        return [each for each in self if not isinstance(each.field, forms.BooleanField)]
