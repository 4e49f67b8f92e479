"""Reports: what a broker did in a stretch of time, and how many workers its queues will need.

Begin with run.py, which counts the events of a journal with Spark, makes a Report of the counts (report.py, pure) and
writes it as a page (page.py, charts.py).  forecast.py estimates workers from a lake.
"""
