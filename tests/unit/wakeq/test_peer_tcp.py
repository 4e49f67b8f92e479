"""Connections between nodes: what stands in the log as an address must not end the dialling."""

import asyncio
import socket

import pytest

from wakeq.listeners.peer_tcp import PeerTcp
from wakeq.protocol.wire.peer import MARK, Hello


def test_a_name_that_can_be_no_host_is_a_node_that_does_not_answer() -> None:
    async def is_connected() -> bool:
        tcp = PeerTcp(lambda: Hello(MARK, 1, 2, bytes(16), 0, 1, 1, {}), lambda _: None)
        tcp.dial(1, ("a" * 70 + ".example", 2603))  # 63 characters are the most between two dots
        return await tcp._connect(1)

    assert asyncio.run(is_connected()) is False


async def dialled(tcp: PeerTcp) -> asyncio.Server:
    """Have node 1 dial node 0; return as soon as somebody there has let it in."""
    let_in = asyncio.Event()
    server = await asyncio.start_server(lambda reader, writer: let_in.set(), "127.0.0.1", 0)
    tcp.dial(0, server.sockets[0].getsockname())
    await let_in.wait()
    return server


def test_who_dials_asks_the_other_end_whether_it_is_still_there() -> None:
    async def is_asked() -> int:
        tcp = PeerTcp(lambda: Hello(MARK, 1, 2, bytes(16), 1, 1, 1, {}), lambda _: None)
        server = await dialled(tcp)
        (door,) = tcp.doors
        assert door._transport is not None
        asked = door._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await tcp.close()
        server.close()
        return int(asked)

    assert asyncio.run(is_asked()) == 1


def test_it_ends_although_a_connection_is_made_in_that_moment() -> None:
    async def end() -> None:
        tcp = PeerTcp(lambda: Hello(MARK, 1, 2, bytes(16), 1, 1, 1, {}), lambda _: None)
        server = await dialled(tcp)
        async with asyncio.timeout(5):
            await tcp.close()
        server.close()

    asyncio.run(end())


def test_a_peer_that_hangs_up_without_a_word_again_is_said_once_for_it_may_want_tls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """But not of one that was ended in that moment."""

    async def dial_thrice() -> str:
        tcp = PeerTcp(lambda: Hello(MARK, 1, 2, bytes(16), 1, 1, 1, {}), lambda _: None)
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        tcp._addresses[0] = (host, port)
        assert await tcp._connect(0) is False
        assert not caplog.records
        for _ in range(2):
            assert await tcp._connect(0) is False
        server.close()
        return f"{host}:{port}"

    where = asyncio.run(dial_thrice())

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        f"the peer at {where} is refused: it hung up before it said which node it is; its log says why, or it wants "
        "TLS (tls.peer_ca_file)"
    ]
