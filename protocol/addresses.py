"""Addresses, as far as it matters whose they are."""

from ipaddress import IPv6Address, ip_address


def is_this_machine(host: str) -> bool:
    """Whether nobody but this machine reaches the address.  Of names only localhost is known to be so."""
    try:
        address = ip_address(host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None  # of a socket for both
        return (mapped or address).is_loopback
    except ValueError:
        return host == "localhost"
