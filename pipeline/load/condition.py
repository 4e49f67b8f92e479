"""A condition in SQL for rows of files: DuckDB decides, batch by batch.

    "urgency > 3", rows --> the rows for which it holds, in their order

It never sees other rows than those of its batch, and changes none.
"""

import duckdb
import numpy as np
import pyarrow as pa

from wakeq.pipeline.load.files import LINE
from wakeq.pipeline.load.sql import SETTINGS, quoted, wrong_condition

# The place of a row in its batch; no name that anybody could mean in a condition.
PLACE = "#"
# One for all lines of a file: a field that a batch lacks is null there, not unknown.
FIELDS = f"SELECT json_group_structure(try_cast({LINE} AS JSON)) FROM lines"


class Condition:
    """A condition about columns, or about the fields of JSON lines."""

    def __init__(self, where: str, fields: str | None = None) -> None:
        self._where = where
        self._database = duckdb.connect(config=SETTINGS)
        self._rows = "FROM rows"
        if fields is not None:
            self._rows = f'SELECT "{PLACE}", unnest(from_json({LINE}, {quoted(fields)})) FROM rows'

    def choose(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the condition holds."""
        self._database.register("rows", rows.append_column(PLACE, pa.array(np.arange(rows.num_rows))))
        try:
            # This takes one expression; in the text of a query a condition could end its own part, and begin another.
            chosen = self._database.sql(self._rows).filter(self._where)
            places = chosen.project(f'"{PLACE}"').order(f'"{PLACE}"').to_arrow_table().column(PLACE)
        except duckdb.Error as error:
            raise wrong_condition(self._where, error) from None
        return rows.take(places.combine_chunks())


def fields_of(lines: pa.RecordBatchReader) -> str:
    """Return the fields of JSON lines and their types, as DuckDB writes them."""
    with duckdb.connect(config=SETTINGS) as database:
        database.register("lines", lines)
        ((fields,),) = database.sql(FIELDS).fetchall()
    # Without any object there is nothing to decide about.
    return fields if fields is not None and fields.startswith("{") else '{"_":"VARCHAR"}'
