"""net: sockets and ports: bytes in, bytes out, nothing decided.  Begin with tcp_door.py."""
