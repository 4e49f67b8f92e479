"""A worker without a library: JSON lines over TCP, as any language with a socket can speak them.

    python examples/sleeper.py 127.0.0.1:2601 emails

SUB, FET; work and ACK what comes; on `nomsg` ISLP and wait; on `awk` FET again.
"""

import json
import socket
import sys


def main(address: str, queue: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        replies = connection.makefile("rb")

        def send(cmd: str, **fields: object) -> None:
            connection.sendall(json.dumps({"cmd": cmd, "qname": queue, **fields}).encode() + b"\n")

        send("SUB")
        send("FET")
        for line in replies:
            reply = json.loads(line)
            match reply["cmd"]:
                case "msg":
                    print(reply["msg"], flush=True)
                    send("ACK", uid=reply["uid"], lease=reply["lease"])
                    send("FET")
                case "nomsg":
                    send("ISLP", wake="ready")  # not for every message, only when there is one for this worker
                case "awk":
                    send("FET")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
