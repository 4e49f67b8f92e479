"""The TaskFlux protocol, binary over TCP: packets (packets.py), their bytes (reader.py, encoder.py) in three dialects
(dialects.py), and the order of a conversation (conversation.py).  Pure; docs/protocols/taskflux.md says every byte."""
