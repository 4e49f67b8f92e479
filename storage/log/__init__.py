"""log: the log as files, the metadata of the node, and the journal.

Begin with segmented_log.py: entries come in from the event loop and are written by one thread.  It consists of one
active segment, `raft.log` (active_segment.py), and of sealed ones (segments.py); opening.py finds them at a start.
metadata.py is term and vote.  journal.py keeps sealed segments after the log no longer needs them, and history.py
opens all of them for readers on other machines.  The bytes of the files are in `protocol/log/format.py`.  The part of
an actor that calls this room is `actors/log/writer.py`.
"""
