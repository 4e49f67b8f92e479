"""FollowedPage: a page of the documentation whose files are written and whose commands are typed.

    blocks of Python that begin with `# name.py` --> files       blocks of a console --> commands, what they print

What is printed below a command must come, but for uids and leases: the page shows those of another broker.  A command
that ends with `&` goes on until the page is over; what stands below it must have come by then.
"""

import re
import signal
import subprocess
import time
from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UID = re.compile(r"\b[0-9A-Za-z]{7}_[0-9A-Za-z]{8}\b")
LEASE = re.compile(r"lease \S+")
OUTPUT_S_MAX = 30


class FollowedPage:
    """A page that is being followed in a directory of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        # The uids that the page shows, each with the one that was really given.
        self.uids: dict[str, str] = {}
        self.background: list[tuple[str, subprocess.Popen[bytes], Path, str]] = []

    def write(self, block: str) -> None:
        name = re.match(r"# ([\w/]+\.py)\n", block)
        assert name, f"a block of Python has no name: {block[:60]!r}"
        file = self.folder / name[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block, encoding="utf-8")

    def type(self, block: str) -> None:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command.endswith("&"):
                self.begin(command.removesuffix("&").strip(), shown)
            else:
                self.run(command, shown)

    def run(self, command: str, shown: str) -> None:
        for there, here in self.uids.items():
            command = command.replace(there, here)
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, _comparable(ran.stdout)) == (0, _comparable(shown)), f"{command}\n{ran.stderr}"
        for there, here in zip(UID.findall(shown), UID.findall(ran.stdout), strict=True):
            self.uids.setdefault(there, here)

    def begin(self, command: str, shown: str) -> None:
        said = self.folder / f"said-{len(self.background)}"
        with said.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        self.background.append((command, process, said, shown))

    def end(self) -> None:
        """Background commands have printed what the page shows below them, and stop on request.

        In any order, and perhaps two lines in one: `print` of two threads may mix a line's text and its end.
        """
        for command, process, said, shown in self.background:
            expected = shown.splitlines()
            deadline_s = time.monotonic() + OUTPUT_S_MAX
            while not all(line in said.read_text() for line in expected) and time.monotonic() < deadline_s:
                assert process.poll() is None, f"{command} ended: {said.read_text()}"
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0, f"{command}: {said.read_text()}"
            missing = [line for line in expected if line not in said.read_text()]
            assert not missing, f"{command}: {said.read_text()}"

    def kill(self) -> None:
        for _command, process, _said, _shown in self.background:
            if process.poll() is None:
                process.kill()
                process.wait()


def _comparable(output: str) -> str:
    """Return the output without what differs from run to run."""
    return LEASE.sub("lease LEASE", UID.sub("UID", output))
