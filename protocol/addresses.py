"""Addresses, as far as it matters whose they are."""

from ipaddress import ip_address


def is_this_machine(host: str) -> bool:
    """Whether nobody but this machine reaches the address.  Of names only localhost is known to be so."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
