"""Which columns of a schema can be read and written."""

import pytest

from wakeq.pipeline.stream.columns import check_readable
from wakeq.protocol.errors import BadSettings


def test_schema_that_does_not_fit_is_refused() -> None:
    assert check_readable({"published": "timestamp", "uid": "string collate UTF8_LCASE"}) == ("published", "uid")
    with pytest.raises(BadSettings, match=r"column body is binary, not string; correct \.schema\(\.\.\.\)"):
        check_readable({"uid": "string", "body": "string"})
    with pytest.raises(BadSettings, match="a message has no column value; it has uid"):
        check_readable({"value": "binary"})
