"""What groups promise: join order, no dead members, no empty groups, little memory."""

import tracemalloc
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.actors.runtime import Groups, Process, Runtime


class Member(Process):
    def on_receive(self, message: Any) -> None:
        if isinstance(message, BaseException):
            raise message


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["join", "leave", "forget"]),
            st.sampled_from(["a", None, ("sub", "q"), frozenset([1]), 0]),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_groups_behave_like_a_list_for_each_name(steps: list[tuple[str, Hashable, int]]) -> None:
    runtime = Runtime()
    groups = Groups()
    processes = [runtime.spawn(Member) for _ in range(4)]
    model: dict[Hashable, list[Process]] = {}

    for step, group, i in steps:
        process = processes[i]
        members = model.setdefault(group, [])
        if step == "join":
            groups.join(group, process)
            if process not in members:
                members.append(process)
        elif step == "leave":
            groups.leave(group, process)
            if process in members:
                members.remove(process)
        else:
            groups.forget(process)
            model = {name: [p for p in listed if p is not process] for name, listed in model.items()}

    for group, members in model.items():
        assert groups.members(group) == members
        assert groups.first(group, 2) == members[:2]
        assert groups.count(group) == len(members)
        assert all((process in groups.members(group)) == (process in members) for process in processes)
    assert len(groups) == sum(map(bool, model.values()))
    assert len(groups._groups_of) == len({p for members in model.values() for p in members})
    for member, known in groups._groups_of.items():
        assert (type(known) is dict) == (sum(member in members for members in model.values()) > 1)


@pytest.mark.parametrize("last", [None, ValueError("bad")])
def test_process_that_ends_is_forgotten_by_all_its_groups(last: Exception | None) -> None:
    runtime = Runtime()
    process, other = runtime.spawn(Member), runtime.spawn(Member)
    for group in ("one", "two"):
        runtime.groups.join(group, process)
    runtime.groups.join("two", other)

    process.stop() if last is None else process.tell(last)
    runtime.run_until_idle()

    assert len(runtime.groups) == 1
    assert runtime.groups.members("two") == [other]


def test_dead_process_cannot_join() -> None:
    runtime = Runtime()
    process = runtime.spawn(Member)
    process.stop()
    runtime.run_until_idle()

    runtime.groups.join("late", process)

    assert len(runtime.groups) == 0


def test_list_of_members_is_the_callers_own() -> None:
    runtime = Runtime()
    process = runtime.spawn(Member)
    runtime.groups.join("g", process)

    for member in runtime.groups.members("g"):
        runtime.groups.leave("g", member)

    assert runtime.groups.count("g") == 0


def test_fifteen_thousand_members_of_one_group_each_take_little() -> None:
    runtime = Runtime()
    processes = [runtime.spawn(Member) for _ in range(15_000)]

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for process in processes:
        runtime.groups.join("sleepers", process)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert used / len(processes) < 150
