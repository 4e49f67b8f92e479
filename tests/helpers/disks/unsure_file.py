"""UnsureFile: a file of which only synced bytes are sure, and every content that a power cut may leave of it.

    with watched() as steps: pwrite, fdatasync    -->  steps --> contents_after_a_cut, for each moment

A write that no sync has followed may be there, or not, or torn, whatever became of others beside it and in whatever
order they were made.  All of that is counted off: nothing is drawn, so that a fault is found always or never.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple

import pytest

ROTTEN = b"\xa5"  # what a torn sector holds that is neither the old nor the new


class Write(NamedTuple):
    offset: int
    data: bytes


class Sync(NamedTuple):
    """All that was written before it is sure."""


Step = Write | Sync


@contextmanager
def watched(patch: pytest.MonkeyPatch) -> Iterator[list[Step]]:
    """Write down what is written and synced; both are also done."""
    steps: list[Step] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(descriptor: int, data: bytes, offset: int) -> int:
        steps.append(Write(offset, bytes(data)))
        return pwrite(descriptor, data, offset)

    def sync(descriptor: int) -> None:
        fdatasync(descriptor)
        steps.append(Sync())

    with patch.context() as inner:
        inner.setattr(os, "pwrite", write)
        inner.setattr(os, "fdatasync", sync)
        yield steps


def contents_after_a_cut(before: bytes, steps: Sequence[Step]) -> Iterator[tuple[int, bytes]]:
    """Yield how many steps were done when the power was cut, and a content that it may have left, each once."""
    sure = before
    unsure: list[Write] = []
    for done in range(len(steps) + 1):
        if done:
            step = steps[done - 1]
            if isinstance(step, Write):
                unsure.append(step)
            else:
                for write in unsure:
                    sure = _written(sure, write.offset, write.data)
                unsure = []
        for content in dict.fromkeys(_mixtures(sure, unsure)):
            yield done, content


def _mixtures(sure: bytes, unsure: Sequence[Write]) -> Iterator[bytes]:
    for fates in product(*(_fates(sure, write) for write in unsure)):
        content = sure
        for write, data in zip(unsure, fates, strict=True):
            if data is not None:
                content = _written(content, write.offset, data)
        yield content


def _fates(sure: bytes, write: Write) -> list[bytes | None]:
    """Return what may stand in place of a write: nothing of it, all of it, either part of it, rot."""
    new, size = write.data, len(write.data)
    old = sure[write.offset : write.offset + size].ljust(size, b"\0")
    cuts = sorted({1, 9, size // 2, size - 1})
    torn = [part for cut in cuts for part in (new[:cut] + old[cut:], old[:cut] + new[cut:])]
    return [None, new, *torn, new[: size // 2] + ROTTEN * (size - size // 2)]


def _written(content: bytes, offset: int, data: bytes) -> bytes:
    content = content.ljust(offset + len(data), b"\0")
    return content[:offset] + data + content[offset + len(data) :]
