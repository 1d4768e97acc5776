"""A new operation from a checkpoint of another, as the form for it shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.http import QueryDict

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.dashboard.form import Form
from apps.operations.models import Operation
from apps.operations.requests import changed_code, forking, previews, services
from apps.operations.requests.previews import Preview
from apps.operations.requests.warm_starting import warm_start
from trainops.errors import DomainError
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.recipes import Recipe, recipes
from trainops.runtime.errors import ConfigError

VERBS = ("fork", "extend", "warm_start")  # also the names in the address
TITLES = {"fork": "Fork", "extend": "Train longer", "warm_start": "Warm start"}


def source_of(operation_id: str) -> Operation | None:
    """Return the operation that a new one is to be like, if its recipe is still there."""
    source = Operation.objects.filter(pk=operation_id).first()
    return source if source is not None and source.recipe in recipes() else None


@dataclass(frozen=True)
class Branch:
    """`verb` says what is to be done with the checkpoint of `source`.

    refused_files: changed files that a submission was refused for; its checkpoint may be older than
    the newest, whose files may be missing.
    """

    verb: str
    source: Operation
    refused_files: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: QueryDict) -> "Branch | None":
        """Return what an address or a form names, if its operation and recipe are still there."""
        for verb in VERBS:
            if source := source_of(query.get(verb, "")):
                return cls(verb, source)
        return None

    @property
    def title(self) -> str:
        return TITLES[self.verb]

    def refused(self, refusal: DomainError) -> "Branch":
        """Return the branch whose form asks about what the refusal of a submission names."""
        if refusal.code != "CODE_CHANGED":
            return self
        return replace(self, refused_files=tuple(refusal.details["changed_files"]))

    @property
    def is_fork(self) -> bool:
        """Whether it continues the training, rather than only take its weights."""
        return self.verb != "warm_start"

    def submit(self, *, accept_inexact: bool, **given: Any) -> Operation:
        """Submit it; see `forking.fork` and `warm_start`."""
        if not self.is_fork:
            return warm_start(operation_id=self.source.pk, **given)
        return forking.fork(operation_id=self.source.pk, accept_inexact=accept_inexact, **given)

    @cached_property
    def _newest(self) -> Checkpoint | None:
        return next(iter(checkpoints.to_resume_from(self.source.pk)[:1]), None)

    @property
    def place(self) -> str:
        """Where the newest checkpoint stands; empty if there is none."""
        return services.position(self._newest, self.source) if self._newest else ""

    @cached_property
    def inexact(self) -> str:
        """Why a person must accept that a fork is not exact; empty where it may be."""
        if not self.is_fork or self._newest is None:
            return ""
        changed = self.refused_files or changed_code.of(self.source, self._newest)
        return changed_code.differing(changed) if changed else ""

    @property
    def may_differ(self) -> list[str] | None:
        """The fields that may differ; None: all."""
        return sorted(KINDS[self.source.kind].forkable()) if self.is_fork else None

    def config(self) -> Config:
        """Return the config that the form begins with: twice the length, to train longer."""
        path, length = forking.length_of(self.source)
        if self.verb != "extend" or not path:
            return dict(self.source.config)
        return forking.merged(self.source.config, forking.longer(self.source, 2 * length))

    def preview(self, config: Mapping[str, object]) -> Preview:
        """Return what submitting this config would do; see `previews.preview`."""
        verb: previews.Verb = "fork" if self.is_fork else "warm_start"
        return previews.preview(verb, operation_id=self.source.pk, config=config)

    def answer(self, config: Mapping[str, object]) -> tuple[Preview | None, str]:
        """Return what training longer would do, or why the checkpoint cannot continue so."""
        if self.verb != "extend":
            return None, ""
        try:
            return self.preview(config), ""
        except (ConfigError, DomainError) as error:
            return None, str(error)


def posted_form(recipe: Recipe, posted: QueryDict, branch: Branch | None) -> Form:
    """Return the form that was posted, with the fields that its page showed."""
    return Form(
        recipe,
        recipe.example,
        posted=posted,
        may_differ=branch.may_differ if branch else None,
        again=again_of(recipe, posted),
    )


def again_of(recipe: Recipe, posted: QueryDict) -> Operation | None:
    """Return what runs again; None where another recipe was chosen meanwhile."""
    source = source_of(posted.get("from", ""))
    return source if source and source.recipe == recipe.name else None
