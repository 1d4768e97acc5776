"""Every journey by people of each role, by mouse and by keyboard, in both themes, at any width."""

from itertools import product

import pytest
from django.contrib.auth.models import User

from tests.browser.conftest import WIDE
from tests.browser.hands import HANDS
from tests.browser.journeys import JOURNEYS, Person
from tests.pages import making

# The default run has every second journey once, each in another way; `--all` has all of them.
pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.whole]
WIDTHS = (390, 768, 1024, 1440)
WAYS = [
    (means, scheme, WIDTHS[(place + offset) % len(WIDTHS)])
    for offset in range(len(WIDTHS))
    for place, (means, scheme) in enumerate(product(HANDS, ("light", "dark")))
]


def cases():
    for number, (name, journey) in enumerate(JOURNEYS.items()):
        chosen = journey.roles[number % len(journey.roles)], WAYS[number // 2 % len(WAYS)]
        for role, way in product(journey.roles, WAYS):
            is_chosen = number % 2 == 0 and (role, way) == chosen
            marks = () if is_chosen else (pytest.mark.exhaustive,)
            id = "-".join(map(str, (name, role, *way)))
            yield pytest.param(name, role, *way, id=id, marks=marks)


@pytest.fixture
def person(ana, open_page, tmp_path):
    def person(role, means, scheme, width):
        user = making.person("noor", role)
        if role == "admin":
            user.is_staff = user.is_superuser = True
            user.save()
        page = open_page("/", WIDE | {"width": width}, scheme, user=User.objects.get(pk=user.pk))
        return Person(user, page, HANDS[means](page), tmp_path)

    return person


@pytest.mark.parametrize(("name", "role", "means", "scheme", "width"), [*cases()])
def test_a_journey(person, in_process, name, role, means, scheme, width):
    JOURNEYS[name].take(person(role, means, scheme, width))


def test_the_sample_has_every_role_means_theme_and_width():
    sample = [each.values for each in cases() if not each.marks]
    assert [name for name, *_ in sample] == list(JOURNEYS)[::2]
    _, roles, *ways = map(set, zip(*sample, strict=True))
    assert roles == {"viewer", "operator", "admin"}
    assert ways == [set(each) for each in zip(*WAYS, strict=True)]
