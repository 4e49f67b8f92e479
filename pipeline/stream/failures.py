"""What went wrong within Spark, as the one line that it was there.

    an exception of Spark, with the traceback of a worker in it --> the error of wakeq, or SparkFailed

For the verbs of the command line.  A user's own program gets Spark's exceptions as they are.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from wakeq.protocol import errors
from wakeq.protocol.errors import SparkFailed, WakeqError

_RAISED = re.compile(r"^\s*wakeq(?:\.\w+)+\.(\w+): (.+)$", re.MULTILINE)  # the end of a traceback
_OWN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOISE = re.compile(r"^(An error occurred while calling .*|: |[\w.]+(Exception|Error): )+")


@contextmanager
def told_plainly() -> Iterator[None]:
    """Raise what Spark says as an error of wakeq."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _OWN_LOGGERS]  # which say the same, in thousands of characters
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _is_interrupted(error):
            raise KeyboardInterrupt from None
        raise plain_error(str(error)) from None
    finally:
        for logger in loggers:
            logger.disabled = False


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether it is only what Spark says of work that was broken off by Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def plain_error(text: str) -> WakeqError:
    """Return the error that a worker or the driver has met, found by the words of its traceback."""
    raised = _RAISED.findall(text)
    if raised:
        name, said = raised[-1]
        kind: type[WakeqError] = getattr(errors, name, WakeqError)
        return kind.__new__(kind, said)  # only its words have come; they need not be put together again
    lines = (_NOISE.sub("", line).strip() for line in text.splitlines())
    first = next((line for line in lines if line), "it did not say why")
    return SparkFailed(f"Spark failed: {first}")
