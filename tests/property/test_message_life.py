"""The life of any message, as one node tells it, is what the journal of the pipeline says of it.

A broker is used at random.  The pipeline decodes the whole history in columns, the server looks for one message: two
ways of reading the same files, which must agree.
"""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from tests.helpers.journal.files import EVERYTHING, rows_of
from tests.helpers.journal.random_life import Life, broker_of_one
from wakeq.protocol.log.events import MessageEvent
from wakeq.protocol.uid import parse
from wakeq.storage.log.history import HistoryFiles
from wakeq.storage.log.message_life import MessageLife

OF_THE_PIPELINE = {
    "claimed": "delivered", "failed": "released", "timed out": "released", "disconnected": "released",
    "acknowledged": "acked", "dead lettered": "dead", "deleted": "moved", "made due": "requeued",
}  # fmt: skip
OF_QUEUES = ("purged", "deleted with its queue")


def word_of(event: MessageEvent) -> str:
    return "cancelled" if event.reason == "cancelled" else OF_THE_PIPELINE.get(event.event, event.event)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 250), is_flushed=st.booleans())
def test_life_of_any_message_is_what_the_journal_says_of_it(seed: int, steps: int, is_flushed: bool) -> None:
    with memory_folder() as folder:
        life = Life(broker_of_one(folder / "data"), random.Random(seed))
        for _ in range(steps):
            life.step()
        if is_flushed:
            life.write_down()
        rows = [row for row in rows_of(folder / "data", wanted=EVERYTHING) if row["uid"] is not None]
        told = [row for row in rows if row["outcome"] == "done"]
        open_uids = {row["uid"] for row in rows if row["outcome"] == "open"}
        published = {row["uid"]: row for row in told if row["event"] in ("published", "stashed")}
        files = HistoryFiles(life.broker.files.log)

        for uid, first in published.items():
            if uid in open_uids:
                continue
            found = MessageLife(files, first["queue"], *parse(uid), is_living=False)  # type: ignore[misc]
            while not found.step():
                pass

            mine = [(event.at_ms, word_of(event)) for event in found.events if event.event not in OF_QUEUES]
            theirs = [(round(row["at"].timestamp() * 1000), row["event"]) for row in told if row["uid"] == uid]
            assert mine == theirs, uid
            # A purge of its queue may be among the entries whose outcomes are not written down.
            assert found.is_complete or not is_flushed
            assert found.draft is not None
            body = next(row["body"] for row in told if row["uid"] == uid)
            assert found.draft.body == body
        life.broker.close()
