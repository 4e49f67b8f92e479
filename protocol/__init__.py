"""protocol: what things mean.  Pure: no socket, file, clock, thread, log call or async in this room."""
