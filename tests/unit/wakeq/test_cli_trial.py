"""Proves wakeq/cli/trial: a node that ends by itself, or is killed to see what happens, can be started again."""

import subprocess
import threading

import pytest

from wakeq.cli.trial import show


@pytest.mark.parametrize(
    ("is_stopping", "last"), [(False, "node 2 has ended; start it again by: echo 'wakeq ready'"), (True, "")]
)
def test_a_node_that_ends_alone_is_told_with_its_command(
    is_stopping: bool, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = threading.Event()
    if is_stopping:
        stopping.set()

    with subprocess.Popen(["echo", "wakeq ready"], stdout=subprocess.PIPE, text=True) as node:
        show(2, node, stopping)

    assert capsys.readouterr().out == "\n".join(["node 2: wakeq ready", last]).rstrip() + "\n"
