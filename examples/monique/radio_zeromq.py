"""The radio over ZeroMQ: songs that are played here are also heard over WebSocket, and the other way round.

pip install 'wakeq[monique]'
wakeq serve -f examples/monique/config.json
python examples/monique/radio_zeromq.py listen examples/monique/config.json
python examples/monique/radio_zeromq.py play examples/monique/config.json "one" "two" "three"
"""

import json
import sys
import time
from pathlib import Path

import zmq

from wakeq.monique import make, read_post

SPEC = "example_radio"
# ZeroMQ connects in the background and does not say when.
CONNECT_S = 1.0


def play(socket: "zmq.Socket[bytes]", host: str, port: int, songs: list[str]) -> None:
    socket.connect(f"tcp://{host}:{port}")
    for song in songs:
        socket.send_multipart(make(SPEC, {"song": song}, type="data", creator="0000-0000-0000-radio").frames)
        print(f"played {song}", flush=True)


def listen(socket: "zmq.Socket[bytes]", host: str, port: int) -> None:
    socket.connect(f"tcp://{host}:{port}")
    socket.subscribe(f"data:{SPEC}:")
    time.sleep(CONNECT_S)
    print(f"listening to {host}:{port}", flush=True)
    while True:
        print(f"heard {read_post(socket.recv_multipart()).value()['song']}", flush=True)


def main(action: str, config_path: str, *songs: str) -> None:
    addresses = json.loads(Path(config_path).read_text())["deploy"]["monique"]
    with zmq.Context() as context:
        if action == "play":
            at = addresses["scheduler-in"]
            with context.socket(zmq.PUSH) as socket:
                play(socket, at["host"], at["comport"], list(songs))
        else:
            at = addresses["scheduler-out"]
            with context.socket(zmq.SUB) as socket:
                listen(socket, at["host"], at["comport"])


if __name__ == "__main__":
    main(*sys.argv[1:])
