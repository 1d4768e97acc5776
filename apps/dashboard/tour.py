"""The tour of the product: a few steps, shown after the first sign-in of a user."""

from dataclasses import dataclass

from django.http import HttpRequest

SESSION_KEY = "tour"


@dataclass(frozen=True, slots=True)
class TourStep:
    """One text. `targets`: CSS selectors; the first that is in sight is shown with it."""

    title: str
    text: str
    targets: tuple[str, ...]
    url: str
    needs_operator: bool = False


MENU = (".navbar-toggler",)  # of narrow windows, where the links are in a menu
STEPS = (
    TourStep(
        "Operations",
        "Each long job, such as a training, is one operation, and one row of this list. The "
        "rows are updated while you look. Search by state, metric, parameter or tag, for example "
        "state:failed or val_loss<0.1.",
        ("#list", '.nav-link[href="/"]', *MENU),
        "/",
    ),
    TourStep(
        "New operation",
        "Choose a recipe, review its settings and submit. The form shows which workers can run the "
        "operation, and how long earlier ones took.",
        ('[data-testid="new-operation"]',),
        "/operations/new",
        needs_operator=True,
    ),
    TourStep(
        "The page of an operation",
        "The name of an operation leads to its charts, log, checkpoints and files. Cancel saves a "
        "checkpoint first; Resume continues from it. After a resume, a receipt says what was "
        "restored and whether the result stays bit-identical.",
        ("#operation .page-head", ".operations a.name"),
        "/",
    ),
    TourStep(
        "Workers",
        "Workers are the processes that run operations. Their page shows what each of them runs. "
        "An operation that waits says on its own page what it waits for.",
        ('.nav-link[href="/workers/"]', *MENU),
        "/workers/",
    ),
    TourStep(
        "Documentation",
        "The tutorial, guides and reference are part of this installation and can be searched. "
        "Keys, in the same menu, lists the keyboard shortcuts and starts this tour again.",
        ('.nav-link[href="/docs/"]', *MENU),
        "/docs/",
    ),
)


def steps(*, may_create: bool) -> list[TourStep]:
    return [each for each in STEPS if may_create or not each.needs_operator]


def offer(request: HttpRequest) -> None:
    """Have the next page that is rendered start the tour."""
    request.session[SESSION_KEY] = True


def is_due(request: HttpRequest) -> bool:
    """Return whether this page starts the tour; true once."""
    return bool(request.session.pop(SESSION_KEY, False))
