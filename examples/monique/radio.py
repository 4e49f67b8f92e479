"""A radio over WebSocket: one plays, any number listen, and late listeners miss earlier songs.

python examples/monique/radio.py listen         # beside `make serve`, as often as you like
python examples/monique/radio.py play "one" "two" "three"
"""

import asyncio
import sys

from wakeq.monique import AsyncMoniqueClient

SPEC = "example_radio"


async def play(address: str, songs: list[str]) -> None:
    async with AsyncMoniqueClient(address, creator="0000-0000-0000-radio") as client:
        for song in songs:
            await client.push(SPEC, {"song": song}, type="data")
            print(f"played {song}", flush=True)


async def listen(address: str) -> None:
    async with AsyncMoniqueClient(address) as client:
        await client.subscribe((SPEC, "data"))
        print(f"listening to {client.address}", flush=True)
        async for post in client.listen():
            print(f"heard {post.value()['song']}", flush=True)


def main(action: str, *rest: str) -> None:
    address, songs = "127.0.0.1:8080", list(rest)
    if songs and songs[0].startswith("--server="):
        address = songs.pop(0).removeprefix("--server=")
    asyncio.run(play(address, songs) if action == "play" else listen(address))


if __name__ == "__main__":
    main(*sys.argv[1:])
