"""report: what a broker did, as a page (report.py, page.py), and what it will need (forecast.py)."""
