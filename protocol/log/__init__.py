"""log: the entries of the log and all bytes on disk that hold them.  Pure.

Begin with entries.py, the changes as plain data.  records.py encodes an entry and reader.py decodes it, in the layout
of layout.py; format.py is the file around the entries.  rows.py is a message in the state store, outcomes.py the
journal's notes about entries, and listing.py says which segments and outcomes a node has.  docs/files.md describes
every byte.
"""
