"""Addresses of this machine, and others."""

from ipaddress import IPv6Address, ip_address


def is_this_machine(host: str) -> bool:
    """Whether only this machine reaches the address.  Of names only localhost counts."""
    try:
        address = ip_address(host)
        # A socket for both families shows an IPv4 address as a mapped one.
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback
    except ValueError:
        return host == "localhost"
