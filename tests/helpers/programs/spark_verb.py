"""A verb that runs on Spark, to be interrupted: it starts a session, says so, and ends at a Ctrl-C without a word."""

import sys

from wakeq.cli.spark import spark_for

if __name__ == "__main__":
    try:
        with spark_for("a verb", "working") as session:
            print("started", flush=True)
            session.range(1).foreach(lambda _row: __import__("time").sleep(600))
    except KeyboardInterrupt:
        sys.exit(130)
