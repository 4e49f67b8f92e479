"""What Spark says of a failure, in thousands of characters, is one line with the words of the error that it was."""

import pytest

from wakeq.pipeline.spark import plain_error, plain_errors
from wakeq.protocol.errors import BrokerUnreachable, DamagedFile, SparkFailed, WakeqError

OF_A_WORKER = """\
An error occurred while calling o87.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/wakeq/pipeline/sink.py", line 46, in write
    raise {error}: {words}
wakeq.protocol.errors.{error}: {words}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize("kind", [BrokerUnreachable, DamagedFile])
def test_worker_error_keeps_its_type(kind: type[WakeqError]) -> None:
    words = "no broker answers at h:1 (refused); is `wakeq serve` running?"

    error = plain_error(OF_A_WORKER.format(error=kind.__name__, words=words))

    assert type(error) is kind
    assert (str(error), error.exit_status) == (words, kind.exit_status)


def test_foreign_error_keeps_its_text() -> None:
    error = plain_error(
        'Traceback (most recent call last):\n  File "x", line 1\nwakeq.client.timeouts.Closed: this client was closed\n'
    )

    assert (type(error), str(error)) == (WakeqError, "this client was closed")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("An error occurred while calling o1.x.\n: org.apache.SparkException: Job aborted: boom\n\tat a.b", "boom"),
        ("[CAST_INVALID_INPUT] The value 'jobs' cannot be cast. SQLSTATE: 22018\n== SQL ==", "[CAST_INVALID_INPUT]"),
        (
            "[PYTHON_EXCEPTION] Traceback (most recent call last):\n  File x\nKeyError: 'id'\n\tat a.b\n",
            ": KeyError: 'id'",
        ),
        ("", "it did not say why"),
        (
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'pyarrow'\n\tat a.b\n",
            "No module named 'pyarrow'; the Python of its executors (PYSPARK_PYTHON) needs it, "
            "and check(spark) of wakeq.pipeline says which of them lack it",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: Cannot call methods on a "
            "stopped SparkContext.\n\tat a.b",
            "stopped SparkContext.; Spark has ended this program's session: it lost the master, or none answers there",
        ),
    ],
)
def test_failure_of_spark_is_its_first_line(text: str, line: str) -> None:
    error = plain_error(text)

    assert isinstance(error, SparkFailed)
    assert str(error).startswith("Spark failed: ")
    assert line in str(error)
    assert "\n" not in str(error)


@pytest.mark.spark
def test_cancelled_work_is_an_interrupt_and_no_failure() -> None:
    errors = pytest.importorskip("pyspark.errors", reason="pyspark is not installed")

    def work() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise errors.PySparkRuntimeError("Job 3 cancelled as part of cancellation of all jobs")

    with pytest.raises(KeyboardInterrupt), plain_errors():
        work()
