"""The worker port over TCP, and those who begin too much, read too little or come too many: each of the bounds."""

import asyncio
import re
from contextlib import suppress

import pytest

from tests.helpers.doors.worker_port import listening
from tests.helpers.loops.both import Run
from wakeq.actors.sessions.door import (
    BURST_BYTES_MAX,
    FRAME_S_MAX,
    MIB,
    STUCK_S_MAX,
    UNREAD_BYTES_MAX,
    Admission,
    Backlog,
    Verdict,
)
from wakeq.protocol.wire.worker.codec import Bad, Fet, Msg, Ok, Ping, encode, nok

pytestmark = pytest.mark.usefixtures("short_goodbyes")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of connections."""
    return [record.getMessage() for record in caplog.records if record.name == "wakeq.doors"]


def test_line_beyond_the_limit_is_the_last_command_of_its_connection(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            port.listener.line_bytes_max = 100
            reader, writer, subscriber = await port.ask()

            writer.write(b'{"cmd":"FET","qname":"a"}\n' + b"x" * 101 + b'\n{"cmd":"FET","qname":"b"}\n')
            await subscriber.until(lambda: len(subscriber.commands) == 2)
            first, bad = subscriber.commands
            writer.write(b'{"cmd":"FET","qname":"c"}\n')
            for _ in range(3):
                await port.ask()  # the loop has looked at its sockets by now

            assert first == Fet("a")
            assert isinstance(bad, Bad)
            assert bad.error.code == "TOO_LARGE"
            assert bad.error.closes
            subscriber.door.send([nok(bad.error)])
            subscriber.door.close("a line was too long")
            assert b'"err":"TOO_LARGE"' in await reader.read()
            writer.close()
            await subscriber.until(lambda: subscriber.closed is not None)
            assert subscriber.commands == [first, bad]

    run(test)


def test_incomplete_line_ends_the_connection_in_time(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.ask()
            _, _, idle = await port.ask()
            door = subscriber.door
            writer.write(b'{"cmd":')
            while port.listener.admission.held_bytes != 7:
                await asyncio.sleep(0)

            port.pass_time(FRAME_S_MAX - 1)
            writer.write(b'"PI')  # a byte now and then does not help
            while port.listener.admission.held_bytes != 10:
                await asyncio.sleep(0)
            assert subscriber.closed is None
            port.pass_time(1)
            await subscriber.until(lambda: subscriber.closed is not None)

            assert "not complete" in (subscriber.closed or "")
            assert idle.closed is None
            assert door.peer == ""

    run(test)


def test_peer_that_does_not_read_its_answers_is_disconnected(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, _writer, subscriber = await port.ask()
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            message = Msg("q", "u", 0, "x" * MIB)

            sent = 0
            while subscriber.closed is None and sent < 64:
                subscriber.door.send([message])
                sent += 1
                await asyncio.sleep(0)

            assert subscriber.closed == "it does not read its answers"
            assert sent >= UNREAD_BYTES_MAX // MIB
            assert port.listener.admission.held_bytes == 0
            (line,) = lines_of(caplog)
            assert re.fullmatch(r"127\.0\.0\.1:\d+ was disconnected: it does not read its answers", line)

    run(test)


def test_single_long_answer_does_not_disconnect(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, _writer, subscriber = await port.ask()
            message = Msg("q", "u", 0, "x" * (3 * UNREAD_BYTES_MAX))

            subscriber.door.send([message])

            wire = encode([message])
            assert await reader.readexactly(len(wire)) == wire
            assert subscriber.closed is None

    run(test)


def test_unread_oks_of_a_burst_pause_reading_and_then_close_the_connection(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, writer, subscriber = await port.ask()
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            oks = [Ok("q" * 255, "u" * 16)] * 30_000
            size = len(encode(oks))

            for _ in range(BURST_BYTES_MAX // size - 1):
                subscriber.door.send(oks)
                await asyncio.sleep(0)
            writer.write(b'{"cmd":"PING"}\n')
            await subscriber.until(lambda: subscriber.commands == [Ping()])
            while port.listener.admission.held_bytes <= BURST_BYTES_MAX:
                subscriber.door.send(oks)
                await asyncio.sleep(0)

            writer.write(b'{"cmd":"PING"}\n')
            for _ in range(3):
                await port.ask()  # the loop has looked at its sockets by now
            assert subscriber.commands == [Ping()]
            port.pass_time(STUCK_S_MAX - 1)
            assert subscriber.closed is None
            # The kernel may have taken some bytes meanwhile, which is progress once more.
            while subscriber.closed is None:
                port.pass_time(STUCK_S_MAX)
                await asyncio.sleep(0)
            assert subscriber.closed == "it does not read its answers"

    run(test)


def test_connection_beyond_the_limit_is_refused_and_closed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with listening(admission=Admission(connections_max=1)) as port:
            _, writer, subscriber = await port.ask()

            reader, late = await port.connect()
            late.write(b'{"cmd":"PING"}\n' * 1000)
            assert b'"err":"BUSY"' in await reader.read()
            assert len(port.subscribers) == 1
            late.close()

            writer.close()
            await subscriber.until(lambda: subscriber.closed is not None)
            await port.ask()
            assert port.listener.refused == 1
            said = "a connection was turned away: there are 1 connections already (connections_max)"
            assert lines_of(caplog) == [said]

    run(test)


def test_unfinished_lines_of_all_together_are_bounded(run: Run) -> None:
    async def test() -> None:
        async with listening(admission=Admission(held_bytes_max=1000)) as port:
            _, writer, subscriber = await port.ask()

            writer.write(b"x" * 2000)
            await subscriber.until(lambda: bool(subscriber.commands))

            (bad,) = subscriber.commands
            assert isinstance(bad, Bad)
            assert bad.error.code == "BUSY"

    run(test)


@pytest.mark.parametrize("begun", [b'*33000000\n{"cmd":"PUBB"', b'{"cmd":"PUB","message":"'], ids=["frame", "line"])
def test_stranger_may_not_begin_a_long_command(run: Run, begun: bytes) -> None:
    async def test() -> None:
        async with listening(handshake_s=5.0) as port:
            _, known, welcomed = await port.ask()
            welcomed.door.welcome()
            _, stranger = await port.connect()
            known.write(begun)
            stranger.write(begun)
            with suppress(ConnectionError):
                for _ in range(16):
                    known.write(bytes(65_536))
                    stranger.write(bytes(65_536))
                    await known.drain()
                    await stranger.drain()

            await port.subscribers[-1].until(lambda: bool(port.subscribers[-1].commands))
            (bad,) = port.subscribers[-1].commands
            assert isinstance(bad, Bad)
            assert "authenticate with HELLO" in str(bad.error)
            assert not welcomed.commands

    run(test)


@pytest.mark.parametrize("is_told", [True, False])
def test_silent_stranger_is_logged_unless_it_was_closed_before(
    run: Run, caplog: pytest.LogCaptureFixture, is_told: bool
) -> None:
    async def test() -> None:
        async with listening(handshake_s=5.0) as port:
            _reader, _writer, stranger = await port.ask()
            if is_told:
                stranger.door.close("its token is not valid")

            port.pass_time(5)
            await stranger.until(lambda: stranger.closed is not None)

            said = [line.partition(" ")[2] for line in lines_of(caplog)]
            assert said == ([] if is_told else ["was disconnected: it did not authenticate within 5 s"])

    run(test)


def test_closed_connection_that_stays_is_dropped_silently(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with listening() as port:
            _reader, _writer, subscriber = await port.ask()
            subscriber.door.close("the broker stops")

            port.pass_time(FRAME_S_MAX)
            await subscriber.until(lambda: subscriber.closed is not None)

            assert subscriber.closed == "the broker stops"
            assert lines_of(caplog) == []

    run(test)


# --- the judgement alone ---


def test_slow_reader_is_kept() -> None:
    backlog, now_s, waiting = Backlog(0, 0.0), 0.0, BURST_BYTES_MAX + MIB
    assert backlog.wrote(waiting, waiting, now_s, burst=True, crowded=False) is Verdict.PAUSE

    while waiting > UNREAD_BYTES_MAX // 2:
        assert backlog.check(waiting, now_s) is Verdict.KEEP
        now_s += STUCK_S_MAX - 1
        waiting -= MIB

    assert backlog.check(waiting, now_s) is Verdict.RESUME


def test_unread_oks_do_not_count_against_other_answers() -> None:
    backlog = Backlog(0, 0.0)
    backlog.wrote(100 * MIB, 100 * MIB, 0.0, burst=True, crowded=False)

    verdict = backlog.wrote(100, 100 * MIB + 100, 0.0, burst=False, crowded=False)

    assert verdict is Verdict.KEEP


def test_burst_pauses_earlier_when_all_hold_too_much() -> None:
    assert Backlog(0, 0.0).wrote(5 * MIB, 5 * MIB, 0.0, burst=True, crowded=True) is Verdict.PAUSE
    assert Backlog(0, 0.0).wrote(5 * MIB, 5 * MIB, 0.0, burst=True, crowded=False) is Verdict.KEEP
