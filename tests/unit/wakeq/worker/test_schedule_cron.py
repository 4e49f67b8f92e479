"""Tests of Cron: the moments of five fields, clock changes, and errors for malformed fields."""

import sys
import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.worker.schedule import Every, read_cron, read_moments

# A Wednesday.
BEGIN = "2026-11-18T10:30"


def following(text: str, zone: str = "UTC", *, begin: str = BEGIN, count: int = 3) -> list[str]:
    cron, moment, found = read_cron(text, zone), datetime.fromisoformat(f"{begin}+00:00"), []
    for _ in range(count):
        moment = cron.after(moment)
        found.append(moment.strftime("%Y-%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "moments"),
    [
        ("* * * * *", ["2026-11-18T10:31", "2026-11-18T10:32", "2026-11-18T10:33"]),
        ("*/20 * * * *", ["2026-11-18T10:40", "2026-11-18T11:00", "2026-11-18T11:20"]),
        ("30 10 * * *", ["2026-11-19T10:30", "2026-11-20T10:30", "2026-11-21T10:30"]),
        ("0 8-18/5,23 * * *", ["2026-11-18T13:00", "2026-11-18T18:00", "2026-11-18T23:00"]),
        ("5/30 12 * * *", ["2026-11-18T12:05", "2026-11-18T12:35", "2026-11-19T12:05"]),
        ("0 6 * * mon-fri", ["2026-11-19T06:00", "2026-11-20T06:00", "2026-11-23T06:00"]),
        ("0 6 * * 7", ["2026-11-22T06:00", "2026-11-29T06:00", "2026-12-06T06:00"]),
        ("0 0 31 * *", ["2026-12-31T00:00", "2027-01-31T00:00", "2027-03-31T00:00"]),
        ("0 0 29 feb *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        ("0 0 20 * FRI", ["2026-11-20T00:00", "2026-11-27T00:00", "2026-12-04T00:00"]),
        ("0 0 20 * */2", ["2026-12-20T00:00", "2027-02-20T00:00", "2027-03-20T00:00"]),
        ("0 6 * * sat-sun", ["2026-11-21T06:00", "2026-11-22T06:00", "2026-11-28T06:00"]),
        ("0 6 * * fri-7/2", ["2026-11-20T06:00", "2026-11-22T06:00", "2026-11-27T06:00"]),
        ("0 6 * * sun-sun", ["2026-11-22T06:00", "2026-11-29T06:00", "2026-12-06T06:00"]),
        ("@midnight", ["2026-11-19T00:00", "2026-11-20T00:00", "2026-11-21T00:00"]),
        ("@annually", ["2027-01-01T00:00", "2028-01-01T00:00", "2029-01-01T00:00"]),
        ("@weekly", ["2026-11-22T00:00", "2026-11-29T00:00", "2026-12-06T00:00"]),
    ],
)
def test_next_moment_matches_the_fields(text: str, moments: list[str]) -> None:
    assert following(text) == moments


def test_hours_are_those_of_the_zone() -> None:
    assert following("0 9 * * *", "Europe/Berlin", begin="2026-03-27T12:00") == [
        "2026-03-28T08:00",
        # Summer time has begun.
        "2026-03-29T07:00",
        "2026-03-30T07:00",
    ]


@pytest.mark.parametrize(
    ("text", "zone", "begin", "moments"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("30 23 * * *", "America/Nuuk", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", ["2026-10-03T15:30", "2026-10-04T15:15"]),
    ],
)
def test_moment_in_the_skipped_time_comes_once_at_its_end(text: str, zone: str, begin: str, moments: list[str]) -> None:
    assert following(text, zone, begin=begin, count=2) == moments


def test_moment_in_the_repeated_hour_comes_once() -> None:
    assert following("30 2 * * *", "Europe/Berlin", begin="2026-10-24T12:00") == [
        "2026-10-25T00:30",
        "2026-10-26T01:30",
        "2026-10-27T01:30",
    ]


@pytest.mark.parametrize("begin", ["2026-03-28T23:30", "2026-10-24T23:30"])
def test_hourly_schedule_ignores_clock_changes(begin: str) -> None:
    assert following("*/30 * * * *", "Europe/Berlin", begin=begin, count=6) == following(
        "*/30 * * * *", begin=begin, count=6
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a schedule"),
        ("* * * *", "not a schedule"),
        ("60 * * * *", "'60' is not a valid minute \\(0 to 59\\)"),
        ("* 5-3 * * *", "'5-3' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of the month"),
        ("* * * foo *", "'foo' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day of the week"),
        ("*/0 * * * *", "'\\*/0' is not a valid minute"),
        ("1, * * * *", "'' is not a valid minute"),
        ("+5 * * * *", "'\\+5' is not a valid minute"),
        ("1_0 * * * *", "'1_0' is not a valid minute"),
        ("*/+5 * * * *", "not a valid minute"),
        ("\u0665 * * * *", "not a valid minute"),
        ("\u00b2 * * * *", "not a valid minute"),
        ("0 0 * * sun-7/8-9", "not a valid day of the week"),
        ("0 0 30 2 *", "never"),
    ],
)
def test_wrong_field_is_named_in_the_error(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_cron(text)


def test_schedule_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="is not a schedule; pass whole seconds"):
        read_moments(60.0)  # type: ignore[arg-type]


def test_missing_time_zones_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()

    try:
        with pytest.raises(
            ValueError, match=r"'Europe/Berlin' .* has no time zones; install tzdata \(pip install tzdata"
        ):
            read_cron("* * * * *", "Europe/Berlin")
        # UTC needs no data.
        assert following("0 0 * * *", begin="2026-01-01T00:00", count=1)
    finally:
        zoneinfo.reset_tzpath()


def test_unknown_zone_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="'Mars/Olympus' is not a time zone"):
        read_cron("@daily", "Mars/Olympus")


def test_interval_counts_from_1970() -> None:
    moment = datetime(2026, 11, 18, 10, 30, 1, tzinfo=UTC)

    assert Every(90).after(moment) == datetime(2026, 11, 18, 10, 31, 30, tzinfo=UTC)
    assert Every(90).after(datetime(2026, 11, 18, 10, 31, 30, tzinfo=UTC)).minute == 33
    with pytest.raises(ValueError, match="give 1 to"):
        Every(0)


@given(
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Nuuk", "America/New_York", "Australia/Lord_Howe"]),
    begin=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    text=st.sampled_from(["*/15 * * * *", "0 * * * *", "0,30 2,3 * * *", "@daily"]),
)
def test_moments_increase_by_at_most_a_day_and_an_hour(zone: str, begin: datetime, text: str) -> None:
    cron, moment = read_cron(text, zone), begin.replace(tzinfo=UTC)

    for _ in range(5):
        following = cron.after(moment)
        assert timedelta(0) < following - moment <= timedelta(hours=25)
        moment = following
