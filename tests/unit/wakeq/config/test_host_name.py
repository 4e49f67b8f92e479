"""HostName: the number of a pod is found in its name, and in no other name."""

import pytest

from wakeq.config.host_name import number_of
from wakeq.protocol.errors import BadSettings


@pytest.mark.parametrize(
    ("host_name", "number"),
    [("wakeq-0", 0), ("wakeq-12", 12), ("my-own-broker-3", 3), ("wakeq-2.wakeq-nodes.shop-7.svc.cluster.local", 2)],
)
def test_number_at_the_end_of_the_first_part_is_found(host_name: str, number: int) -> None:
    assert number_of(host_name) == number


@pytest.mark.parametrize(
    "host_name", ["", "laptop", "wakeq0", "wakeq-", "wakeq-a", "wakeq.shop-1", "0", "wakeq-7d9f-x"]
)
def test_name_without_a_number_is_refused_with_advice(host_name: str) -> None:
    with pytest.raises(BadSettings, match="wakeq-0 is node 0"):
        number_of(host_name)
