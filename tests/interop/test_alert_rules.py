"""The alert rules of examples/monitoring fire when they should and stay silent otherwise, as Prometheus itself says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool on this machine; install it (Debian: prometheus)"
)


def test_alert_rules_each_have_a_test_in_which_they_fire() -> None:
    names = re.findall(r"- alert: (\w+)", (FOLDER / "alerts.yml").read_text())

    fired = set(re.findall(r'alertname="(\w+)"', (FOLDER / "alerts.test.yml").read_text()))

    assert len(names) > 10
    assert fired == set(names)


@pytest.mark.long
@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")])
def test_rules_are_valid_and_fire_as_their_tests_say(command: tuple[str, ...]) -> None:
    assert PROMTOOL is not None

    done = subprocess.run([PROMTOOL, *command], cwd=FOLDER, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
