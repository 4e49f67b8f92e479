"""The environment of the job libraries: the benchmark's own, made when it is first needed.

In goes requirements-libs.txt, out comes the folder of their programs.  It must never touch the environment that
wakeq runs in, and it is made anew when the requirements change.
"""

import asyncio
import shutil
import sys
from pathlib import Path

from bench.load.clients import PeerFailed
from bench.peers.peer import REPOSITORY

FOLDER = REPOSITORY / "bench" / ".venv-libs"
REQUIREMENTS = REPOSITORY / "bench" / "requirements-libs.txt"
SAID_BYTES = 400


async def programs_folder() -> Path:
    """Where the programs of the libraries are; they are installed if they are not."""
    wanted, installed = REQUIREMENTS.read_text(), FOLDER / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        await _done(sys.executable, "-m", "venv", str(FOLDER))
        (FOLDER / ".gitignore").write_text("*\n")  # git and the linters pass it by, whoever made it
        await _done(str(FOLDER / "bin" / "pip"), "install", "--quiet", "--requirement", str(REQUIREMENTS))
        installed.write_text(wanted)  # last: half an environment is none
    return FOLDER / "bin"


async def _done(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        words = said[-SAID_BYTES:].decode(errors="replace").strip()
        raise PeerFailed(f"the job libraries could not be installed into {FOLDER}: {words}")


def pinned(package: str) -> str:
    """The version that the requirements ask for."""
    for line in REQUIREMENTS.read_text().splitlines():
        name, _, version = line.partition("==")
        if name == package:
            return version
    raise KeyError(f"{REQUIREMENTS} does not name {package}")
