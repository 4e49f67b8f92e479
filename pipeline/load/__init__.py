"""Files or a lake become messages, each row once, however often the command is repeated.

    load.py       the course: batch by batch, each published once
    files.py      rows of Parquet, CSV and JSON lines
    messages.py   messages that a lake tells of
    condition.py  a condition in SQL for rows of files
    sql.py        texts of SQL

Begin with load.py.  It needs pyarrow; conditions and lakes need duckdb; nothing here needs Spark.
"""
