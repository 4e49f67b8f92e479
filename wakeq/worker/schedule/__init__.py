"""schedule: the moments of a schedule (cron.py), and the publishing at these moments (timetable.py)."""
