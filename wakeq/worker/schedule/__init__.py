"""schedule: when tasks recur (cron.py), and who publishes them then (timetable.py)."""
