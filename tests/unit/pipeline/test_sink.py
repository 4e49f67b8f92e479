"""The sink without Spark: which writes it refuses before anything is done."""

import pytest

from wakeq.pipeline.options import write_options
from wakeq.protocol.errors import BadSettings


def test_a_batch_write_with_a_writer_says_which_of_its_epochs_it_is() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from wakeq.pipeline.sink import QueueWriter

    with pytest.raises(BadSettings, match="writer 'nightly' needs option epoch"):
        QueueWriter(write_options({"queue": "q", "writer": "nightly"}), ["body"], overwrite=False)

    QueueWriter(write_options({"queue": "q", "writer": "nightly", "epoch": "7"}), ["body"], overwrite=False)
    QueueWriter(write_options({"queue": "q"}), ["body"], overwrite=False)
