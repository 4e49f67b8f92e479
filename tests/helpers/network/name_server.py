"""A name server for a test: names and their addresses, which change while it runs.

    address --> NameServer --> names["wakeq-0.example"] = "10.0.0.1" --> answers, or "no such name", or silence

It answers questions for addresses of IPv4, over UDP, and lets nobody keep an answer (a time to live of 0).
"""

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

PORT = 53
HEADER = struct.Struct("!6H")
# An answer: a pointer to the question's name, type A, class IN, time to live 0, four bytes.
RECORD = struct.Struct("!HHHIH4s")
NAME_OF_QUESTION = 0xC00C
TYPE_A, CLASS_IN = 1, 1
IS_ANSWER, NO_SUCH_NAME = 0x8580, 3


class NameServer:
    """Answers from a thread of its own until it is closed."""

    def __init__(self, address: str) -> None:
        self.names: dict[str, str] = {}
        # Questions are read and thrown away.
        self.is_silent = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, PORT))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # This ends the read that goes on, although the socket was never connected and the system says so.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(512)
            if not question:
                return
            if not self.is_silent:
                self._socket.sendto(self._answer(question), asker)

    def _answer(self, question: bytes) -> bytes:
        number, *_ = HEADER.unpack_from(question)
        labels, place = [], HEADER.size
        while size := question[place]:
            labels.append(question[place + 1 : place + 1 + size].decode())
            place += 1 + size
        (kind,) = struct.unpack_from("!H", question, place + 1)
        asked = question[HEADER.size : place + 5]
        address = self.names.get(".".join(labels).lower())
        found = b""
        if address is not None and kind == TYPE_A:
            found = RECORD.pack(NAME_OF_QUESTION, TYPE_A, CLASS_IN, 0, 4, socket.inet_aton(address))
        flags = IS_ANSWER | (NO_SUCH_NAME if address is None else 0)
        return HEADER.pack(number, flags, 1, 1 if found else 0, 0, 0) + asked + found
