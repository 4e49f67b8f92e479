"""Levels: what each entry needs, and which clusters a release can belong to."""

import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import WrongVersion
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    Delivered,
    Draft,
    Entry,
    Members,
    Noop,
    PauseQueue,
    Publish,
    Requeued,
    Stash,
    Unstash,
    UnstashAction,
    UpdateQueue,
)
from wakeq.protocol.log.level import LEVEL, check_level, level_of
from wakeq.protocol.raft.membership import Config

ACK = Ack("q", 3, [1], [ANY_TOKEN], [])


@pytest.mark.parametrize(
    ("entry", "level"),
    [
        (Noop(), 1),
        (Publish("q", [Draft(b"m")]), 1),
        (Delivered("q", 3, [1], [9], 1), 1),
        (ACK, 1),
        (Members(Config(())), 1),
        (CreateQueue("q", Policies()), 1),
        (UpdateQueue("q", {"wake": "ready", "max_size": 1}), 1),
        (UpdateQueue("q", {"wake": "sleeper", "max_size": 1}), 3),
        (Ack("q", 3, [1], [ANY_TOKEN], [], moved=True), 2),
        (Requeued("q", 3, [1]), 2),
        (PauseQueue("q", 9), 2),
        (Claim("q", 3, ClaimAction.STAGED, "s", 1), 2),
        (Stash("q", [Draft(b"m")], "s", 1, 1000), 2),
        (Unstash("q", UnstashAction.DROPPED, [("s", 0)]), 2),
    ],
)
def test_an_entry_needs_the_level_that_it_came_with(entry: Entry, level: int) -> None:
    assert level_of(entry) == level


def test_a_cluster_beyond_what_this_release_knows_is_refused_with_what_to_do() -> None:
    check_level(LEVEL, "data")

    with pytest.raises(WrongVersion, match=f"data: the cluster works at level {LEVEL + 1}, this release knows levels"):
        check_level(LEVEL + 1, "data")
