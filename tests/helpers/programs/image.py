"""The image as deploy/Dockerfile describes it: its instructions, and the settings that it brings."""

import re
from pathlib import Path

DOCKERFILE = Path(__file__).parents[3] / "deploy/Dockerfile"


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each in one line."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(word, " ".join(rest.split())) for word, rest in lines]


def said(instruction: str) -> list[str]:
    """What follows each instruction of a kind."""
    return [rest for word, rest in dockerfile() if word == instruction]


def environment_of_image() -> dict[str, str]:
    """The settings that every container of the image has."""
    pairs = [pair.partition("=") for env in said("ENV") for pair in env.split()]
    return {name: value for name, _, value in pairs if name.startswith("WAKEQ_")}
