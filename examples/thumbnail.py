"""An image thumbnailer without any wakeq code: `wakeq work` passes it an image, and its exit status is the outcome.

    wakeq work images --concurrency 2 -- python examples/thumbnail.py thumbnails
    wakeq pub images - < photo.ppm

It reads a binary PPM from standard input and writes DIRECTORY/UID.ppm with at most 64 pixels on each side. If the input
is not an image, it exits with 65, and the message becomes a dead letter. The file appears whole or not at all, because
a message may be handled twice.
"""

import os
import re
import sys
from pathlib import Path

SIDE_MAX = 64
HEAD = re.compile(rb"P6\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+255\s")


def thumbnail(image: bytes) -> bytes:
    """Return a smaller image; each pixel is the mean of a square of pixels. Raise ValueError for other input."""
    head = HEAD.match(image)
    if head is None:
        raise ValueError("this is not a binary PPM with 8 bits per channel")
    width, height, pixels = int(head[1]), int(head[2]), image[head.end() :]
    if len(pixels) != width * height * 3 or not pixels:
        raise ValueError(
            f"an image of {width} x {height} must have {width * height * 3} bytes, and this one has {len(pixels)}"
        )
    step = -(-max(width, height) // SIDE_MAX)
    across, down = max(1, width // step), max(1, height // step)
    small = bytearray()
    for y in range(down):
        rows = [pixels[row * width * 3 : (row + 1) * width * 3] for row in range(y * step, min((y + 1) * step, height))]
        for x in range(across):
            for channel in range(3):
                square = b"".join(row[x * step * 3 + channel : (x + 1) * step * 3 : 3] for row in rows)
                small.append(sum(square) // len(square))
    return b"P6\n%d %d\n255\n" % (across, down) + small


def main(directory: Path) -> None:
    try:
        small = thumbnail(sys.stdin.buffer.read())
    except ValueError as error:
        # The dead letter keeps this text as its reason.
        print(error, file=sys.stderr)
        sys.exit(os.EX_DATAERR)
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f".{os.environ['WAKEQ_UID']}-{os.getpid()}"
    unfinished.write_bytes(small)
    unfinished.rename(directory / f"{os.environ['WAKEQ_UID']}.ppm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
