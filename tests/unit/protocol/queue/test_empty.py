"""What most queues have nothing of."""

import pytest

from wakeq.protocol.queue.empty import EMPTY_DICT, EMPTY_SET


def test_shared_empty_collections_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        EMPTY_DICT["a"] = 1
    with pytest.raises(AttributeError):
        EMPTY_SET.add(1)

    assert not EMPTY_DICT
    assert not EMPTY_SET
