"""The options of the data source: what they mean, and what a wrong one is told."""

import pytest

from wakeq.pipeline.stream.options import read_options, write_options
from wakeq.protocol.errors import BadSettings


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("maxmessagepertrigger", "7", "unknown option maxmessagepertrigger; did you mean maxMessagesPerTrigger?"),
        ("brokers", "h:1", "unknown option brokers; did you mean broker?"),
        ("colour", "red", "unknown option colour; wakeq knows broker, queue, token"),
        ("writer", "w", "unknown option writer; "),
        ("maxMessagesPerTrigger", "many", "option maxMessagesPerTrigger is 'many'; it must be a whole number from 1"),
        ("maxOffsetsPerTrigger", "0", "option maxMessagesPerTrigger is '0'"),
        ("maxBytesPerTrigger", "10x", "option maxBytesPerTrigger is '10x'; write it like 10m .units: k, m, g"),
        ("maxTriggerDelay", "soon", "option maxTriggerDelay is 'soon'; write it like 15m .units: s, m, h"),
        ("failOnDataLoss", "maybe", "option failOnDataLoss is 'maybe'; it must be true or false"),
        ("columns", "uid,colour", "a message has no column colour; it has uid, queue, body"),
        ("columns", " ", "no column is left to be read"),
        ("timeout", "4", "option timeout is '4'; it must be a whole number from 5 to 86400"),
    ],
)
def test_wrong_option_is_named_with_advice(name: str, value: str, complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        read_options({"queue": "q", name: value})


def test_option_with_the_name_of_kafka_is_understood() -> None:
    options = read_options({"queue": "q", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2"})

    assert (options.messages_max, options.messages_min) == (5, 2)


def test_amount_may_have_a_unit() -> None:
    options = read_options({"queue": "q", "maxBytesPerTrigger": "3m", "maxTriggerDelay": "2h", "reconnectFor": "90"})

    assert (options.bytes_max, options.delay_s, options.broker.reconnect_s) == (3 << 20, 7_200, 90)


def test_claim_of_a_stream_lasts_a_day_and_of_a_named_source_five_minutes() -> None:
    assert read_options({"queue": "q"}).timeout_s == 86_400
    assert read_options({"queue": "q", "source": "s"}).timeout_s == 300
    assert read_options({"queue": "q", "source": "s", "timeout": "60"}).timeout_s == 60


def test_stream_waits_for_its_broker_and_a_batch_does_not() -> None:
    for options_of in (read_options, write_options):
        assert options_of({"queue": "q"}, is_stream=True).broker.reconnect_s == 120
        assert options_of({"queue": "q"}).broker.reconnect_s == 0
        assert options_of({"queue": "q", "reconnectfor": "7"}, is_stream=True).broker.reconnect_s == 7


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, "uid queue body priority delivery published"),
        ({"includebody": "false"}, "uid queue priority delivery published"),
        ({"columns": "body, uid"}, "body uid"),
        ({"columns": "uid", "includeheaders": "true"}, "uid headers"),
        ({"columns": "headers", "includeheaders": "true"}, "headers"),
        ({"includestate": "true", "includebody": "false"}, "uid queue priority delivery published state"),
    ],
)
def test_columns_are_chosen_by_options(options: dict[str, str], columns: str) -> None:
    assert " ".join(read_options({"queue": "q", **options}).columns) == columns


def test_token_is_in_no_text_of_the_options() -> None:
    options = read_options({"queue": "q", "token": "wq_secret"})

    assert options.broker.token == "wq_secret"
    assert "wq_secret" not in f"{options} {options!r}"


def test_options_of_a_query_that_spark_passes_on_are_accepted_and_not_used() -> None:
    given = {"queue": "q", "checkpointLocation": "s3a://b/c", "queryName": "nightly"}

    assert write_options(given) == write_options({"queue": "q"})
