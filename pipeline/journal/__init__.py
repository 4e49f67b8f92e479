"""The journal: the history of a broker as a table, one row for each event.

Begin with table.py.  files.py says what a place with history offers; directory.py and broker.py are the two kinds, a
data directory and the HTTP port of a broker.  plan.py divides their segments into spans that can be read in parallel;
walk.py cuts a segment into records, columns.py gathers their fields, numbers.py numbers the published messages,
outcomes.py says which entries took effect, and rows.py makes the columns that a reader wants.  source.py is the same as
a data source of Spark.  Apart from that, only numpy and pyarrow are needed.
"""
