"""The ways themselves: a lone PUB, FET and ACK take the same calls in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def counted(seed: str) -> str:
    """What the tool prints in a process of its own, in which strings are hashed in another way."""
    command = [sys.executable, "-m", "bench.tour", "--cycle"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_lone_cycle_counted_in_two_processes_is_the_same() -> None:
    first, second = counted("1"), counted("2")

    assert "storage/log/active_segment.py" in first  # the log is synced on the way
    assert first == second
