import pytest

from tests.notifications.receiver import EVERYWHERE, Receiver


@pytest.fixture
def receiver(settings):
    settings.WEBHOOK_PRIVATE_ADDRESSES = EVERYWHERE
    receiver = Receiver()
    yield receiver
    receiver.close()
