"""A worker without a library: JSON lines over TCP, which any language with sockets can send.

    python examples/sleeper.py 127.0.0.1:2601 emails

Send SUB and FET. On `msg`, do the work and send ACK and FET. On `nomsg`, send ISLP and wait. On `awk`, send FET.
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
                    # With "ready" the broker wakes this worker only when there is a message for it.
                    send("ISLP", wake="ready")
                case "awk":
                    send("FET")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
