"""client: sessions that speak to a broker; never sees the server's rooms."""
