"""node: a broker as a program.

`node.py` builds and connects every object that lives as long as the broker; begin there.  `assembly.py` builds the
actors, `listeners.py` the ports, `service.py` runs a node under signals and systemd.  The command line calls it;
nothing below imports it.
"""
