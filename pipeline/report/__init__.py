"""Reports: what a broker did in a stretch of time, and how many workers its queues will need.

Begin with run.py, which makes a Report (report.py, pure) of the events of a journal or a lake (events.py), and writes
it as a page (page.py, charts.py). queries.py has the questions in SQL; an engine (engine.py) answers them: embedded.py
in this process by DuckDB, on_spark.py in a session of Spark. forecast.py estimates workers.
"""
