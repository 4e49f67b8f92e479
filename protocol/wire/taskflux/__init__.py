"""The TaskFlux protocol, binary over TCP: packets (commands.py), their bytes (codec.py, decoders.py) in three dialects
(dialects.py), and one connection (conversation.py, answers.py).  Pure; docs/protocols/taskflux.md says every byte."""
