"""TaskFlux's words for queues, against those of the catalog."""

import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Result
from wakeq.protocol.wire.taskflux.answers import INT32_MAX, INT64_MAX, info_of, policies_of, refused
from wakeq.protocol.wire.taskflux.commands import (
    QA,
    BusinessError,
    CreateQueue,
    ErrorCode,
    GeneralViolation,
    KeyRangeViolation,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Response,
)

MIB = 1 << 20


def test_limit_of_zero_is_a_policy_and_a_missing_limit_is_none() -> None:
    assert policies_of(CreateQueue("q")) == Policies()
    assert policies_of(CreateQueue("q", 1, 0, 0)) == Policies(max_size=0, max_message_size=0)


def test_key_range_is_a_policy_of_every_structure() -> None:
    assert policies_of(CreateQueue("q", 1, key_range=(-3, 4))) == Policies(priority_min=-3, priority_max=4)
    assert policies_of(CreateQueue("q", QA, key_range=(0, 0))) == Policies(
        priority_min=0, priority_max=0, structure="QA"
    )


def test_policy_that_is_not_set_is_not_told() -> None:
    policies = Policies(max_size=1000, max_message_size=1048576, priority_min=-10, priority_max=10)
    metadata = (("max-queue-size", "1000"), ("max-payload-size", "1048576"), ("priority-range", "-10 10"))

    assert info_of("orders", 10, policies) == QueueInfo("orders", 10, metadata)
    assert info_of("", 3, Policies()) == QueueInfo("", 3)


def test_numbers_beyond_32_bits_are_told_as_the_largest_32_bit_number() -> None:
    info = info_of("q", 2**40, Policies(max_size=2**40, priority_min=5))

    assert info.count == INT32_MAX
    assert info.metadata == (("max-queue-size", str(INT32_MAX)), ("priority-range", f"5 {INT64_MAX}"))


@pytest.mark.parametrize(
    ("result", "policies", "answer"),
    [
        (Result.QUEUE_FULL, Policies(max_size=3), QueueSizeViolation(3)),
        (Result.KEY_RANGE, Policies(priority_min=1, priority_max=2), KeyRangeViolation(1, 2)),
        (Result.TOO_LARGE, Policies(max_message_size=3), PayloadSizeViolation(3)),
        (Result.TOO_LARGE, Policies(max_message_size=2 * MIB), PayloadSizeViolation(MIB)),
        (Result.TOO_LARGE, Policies(), PayloadSizeViolation(MIB)),
    ],
)
def test_violation_carries_the_limit_that_counts(result: Result, policies: Policies, answer: Response) -> None:
    assert refused(result, policies, MIB) == answer


def test_full_queue_without_a_limit_of_records_is_a_general_violation() -> None:
    assert isinstance(refused(Result.QUEUE_FULL, Policies(max_bytes=3), MIB), GeneralViolation)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Result.NO_QUEUE, ErrorCode.NO_QUEUE),
        (Result.EXISTS, ErrorCode.QUEUE_EXISTS),
        (Result.DEFAULT_QUEUE, ErrorCode.BAD_NAME),
        (Result.BUSY, ErrorCode.UNKNOWN),
    ],
)
def test_refusal_that_no_policy_causes_is_an_error_with_its_code(result: Result, code: ErrorCode) -> None:
    answer = refused(result, Policies(), MIB)

    assert isinstance(answer, BusinessError)
    assert answer.code is code
    assert answer.details
