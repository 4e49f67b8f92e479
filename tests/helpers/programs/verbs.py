"""The verbs of the command line, run as a user runs them.

arguments, environment --> `python -m wakeq ...` --> its exit status and what it printed
"""

import os
import subprocess
import sys


def wakeq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as a user does, with nothing of ours in its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WAKEQ_")}
    command = [sys.executable, "-m", "wakeq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean | environment)
