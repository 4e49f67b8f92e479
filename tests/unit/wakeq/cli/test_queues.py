"""`wakeq queue`: confirmation, given policies, tables, redrive."""

import sys
from datetime import UTC, datetime

import pytest

from tests.helpers.clients.scripted import FakeClient, answer_on_a_terminal, give_on_standard_input
from wakeq.cli import main
from wakeq.cli.operating import Moment
from wakeq.cli.output import moment
from wakeq.protocol.log.entries import PAUSE_MS_MAX


@pytest.mark.parametrize(("text", "count"), [("64MiB", 64 * 1024 * 1024), ("3 KiB", 3072), ("7", 7), ("0B", 0)])
def test_byte_count_is_parsed_as_in_the_settings(fake: type[FakeClient], text: str, count: int) -> None:
    assert main(["queue", "create", "q", "--max-bytes", text, "--max-message-size", text]) == 0

    assert fake.calls[-1] == ("create_queue", ("q",), {"max_bytes": count, "max_message_size": count})


@pytest.mark.parametrize("text", ["64MB", "-1", "1.5GiB", "", "much"])
def test_invalid_byte_count_is_refused_with_an_example(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert main(["queue", "create", "q", "--max-bytes", text]) == 2

    assert f"'--max-bytes': {text!r} is not a number of bytes; write 65536 or 64KiB" in capsys.readouterr().err
    assert fake.calls == []


@pytest.mark.parametrize("verb", ["delete", "purge"])
def test_destructive_command_asks_first(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    answer_on_a_terminal(monkeypatch, "n\n")

    status = main(["queue", verb, "q"])

    assert status == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert fake.calls == []


@pytest.mark.parametrize(("verb", "call"), [("delete", "delete_queue"), ("purge", "purge")])
def test_destructive_command_runs_after_yes(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, verb: str, call: str
) -> None:
    answer_on_a_terminal(monkeypatch, "y\n")

    statuses = [main(["queue", verb, "q"]), main(["queue", verb, "q", "--yes"])]

    assert statuses == [0, 0]
    assert [name for name, *_ in fake.calls if name == call] == [call, call]


def test_destructive_command_without_a_terminal_is_refused(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_on_standard_input(monkeypatch, b"y\n")

    status = main(["queue", "delete", "q"])

    assert status == 2
    assert "--yes" in capsys.readouterr().err
    assert fake.calls == []


def test_queue_create_passes_every_given_policy(fake: type[FakeClient]) -> None:
    line = (
        "queue create q --max-size 1 --max-bytes 2 --max-message-size 3 --priority-min -4 --priority-max 4 "
        "--structure QA --timeout 30 --max-deliveries 5 --dead-letter graves --retry-backoff exponential "
        "--retry-base 1 --retry-max 60 --retry-jitter 0.5 --wake all --lease strict --on-disconnect release"
    )

    main(line.split())

    assert fake.calls[1] == (
        "create_queue",
        ("q",),
        {
            "max_size": 1,
            "max_bytes": 2,
            "max_message_size": 3,
            "priority_min": -4,
            "priority_max": 4,
            "structure": "QA",
            "timeout": 30,
            "max_deliveries": 5,
            "dead_letter": "graves",
            "retry": {"backoff": "exponential", "base": 1.0, "max": 60.0, "jitter": 0.5},
            "wake": "all",
            "lease": "strict",
            "on_disconnect": "release",
        },
    )


def test_queue_update_keeps_omitted_parts_of_the_retry_policy(fake: type[FakeClient]) -> None:
    main(["queue", "update", "q", "--retry-base", "2", "--reset", "max-size"])

    assert fake.calls[-1] == (
        "update_queue",
        ("q",),
        {"retry": {"base": 2.0, "max": 9.0}, "max_size": None},
    )


def test_default_queue_is_visible_in_a_table(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake, "answer", lambda _self, _name: {"queues": [{"qname": "", "ready": 1}]})

    main(["queue", "stats"])

    assert capsys.readouterr().out.splitlines()[1].startswith('""\t1')


def test_tables_on_a_pipe_are_tab_separated(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    main(["queue", "list"])
    main(["queue", "stats", "q"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("\t")[:2] == ["emails", "3"]
    assert "policies.retry.base\t1.0" in lines
    assert "\x1b" not in "".join(lines)


def test_moments_are_shown_in_local_time(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = {"created_ms": 1_795_037_677_841, "paused_until_ms": 0}
    monkeypatch.setattr(fake, "answer", lambda _self, _name: stats)

    main(["queue", "stats", "q"])
    main(["queue", "stats", "q", "--json"])

    _, made, paused, as_json = capsys.readouterr().out.splitlines()
    assert (made, paused) == (f"created\t{moment(1_795_037_677_841)}", "paused_until\t-")
    assert "1795037677841" in as_json


def test_endless_pause_is_shown_as_such(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paused = {"qname": "q", "paused_until_ms": PAUSE_MS_MAX}
    monkeypatch.setattr(fake, "answer", lambda _self, name: paused if name == "stats" else [paused, {"qname": "r"}])

    main(["queue", "stats", "q"])
    main(["queue", "list"])

    lines = capsys.readouterr().out.splitlines()
    assert "paused_until\tresumed" in lines
    assert [line.split("\t")[-1] for line in lines[-3:]] == ["state", "paused", ""]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-24T18:00:00Z", datetime(2026, 12, 24, 18, tzinfo=UTC)),
        ("2026-12-24 18:00+02:00", datetime(2026, 12, 24, 16, tzinfo=UTC)),
        ("2026-12-24", datetime(2026, 12, 24).astimezone()),
    ],
)
def test_moment_may_have_a_time_zone(text: str, expected: datetime) -> None:
    assert Moment().convert(text, None, None) == expected


def test_invalid_moment_is_refused_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "pause", "q", "--until", "18:00"]) == 2
    assert "'18:00' is not a time; write 2026-12-24T18:00" in capsys.readouterr().err


def test_dead_letter_shows_its_origin_and_reason(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = {"wakeq-origin": "emails", "wakeq-reason": "rejected", "wakeq-error": "no address"}
    letter = {"uid": "u", "state": "ready", "priority": 0, "error": "", "msg": "x", "headers": headers}
    monkeypatch.setattr(fake, "answer", lambda _self, _name: [letter])

    main(["queue", "peek", "emails.dead"])

    assert capsys.readouterr().out.splitlines() == [
        "uid\tstate\tpriority\torigin\treason\terror\tmsg",
        "u\tready\t0\temails\trejected\tno address\tx",
    ]


def test_redrive_reports_moved_and_remaining_letters(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["queue", "redrive", "emails.dead", "--limit", "5", "--to", "again", "--yes"])

    said = capsys.readouterr()
    assert status == 0
    name, arguments, options = fake.calls[-1]
    assert (name, arguments, options["to"], options["anywhere"]) == ("redrive", ("emails.dead", 5), "again", False)
    assert said.out == "redriven from queue emails.dead: 3\n"
    assert said.err.startswith("wakeq: not moved from queue emails.dead, because they have no wakeq-origin: 1;")


def test_redrive_asks_first(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake here would repeat a thousand failed jobs."""
    give_on_standard_input(monkeypatch, b"y\n")

    status = main(["queue", "redrive", "emails.dead", "--limit", "5"])

    assert (status, fake.calls) == (2, [])
    said = capsys.readouterr().err
    assert "Move up to 5 dead letters of queue emails.dead back to where they came from?" in said
    assert "--yes" in said


def test_dry_run_of_redrive_moves_nothing(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    main(["queue", "redrive", "emails.dead", "--dry-run"])

    assert [name for name, *_ in fake.calls] == ["connect", "stats", "peek"]
    assert "nothing was moved; queue emails.dead has 3 ready messages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["peek", "q"], "wakeq: queue q has no ready messages; delayed: 2, leased: 1; --state any shows all\n"),
        (["peek", "q", "--state", "any"], "wakeq: queue q has no messages\n"),
        (["list", "em"], "wakeq: no queue has a name that begins with em\n"),
    ],
)
def test_nothing_to_show_is_said_in_words(
    fake: type[FakeClient],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    counts = {"ready": 3, "delayed": 2, "leased": 1}
    monkeypatch.setattr(fake, "answer", lambda _self, name: counts if name == "stats" else [])

    assert main(["queue", *arguments]) == 0

    # A program on a pipe still gets the names of the columns.
    shown = capsys.readouterr()
    assert shown.err.startswith(said)
    assert shown.out.count("\n") == 1

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(["queue", *arguments])

    assert capsys.readouterr().out == ""
