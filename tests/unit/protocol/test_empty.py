"""What most queues have nothing of."""

import pytest

from wakeq.protocol.empty import NONE, NOTHING


def test_nobody_can_put_something_into_what_all_share() -> None:
    with pytest.raises(TypeError):
        NOTHING["a"] = 1
    with pytest.raises(AttributeError):
        NONE.add(1)

    assert not NOTHING
    assert not NONE
