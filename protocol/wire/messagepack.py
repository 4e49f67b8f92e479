"""MessagePack of strangers: any value that somebody else wrote, decoded exactly and within bounds.

    packed bytes --> decode --> value, or ValueError          value --> encode --> packed bytes

For what a program or a person is given: decoding costs more than the hot path may pay, whose types msgspec decodes.
A timestamp is a `msgpack.Timestamp`, with all of its nanoseconds; any other extension is a `msgspec.msgpack.Ext`.
Must never hold more of a value than NODES_MAX allows, nor believe a length that it has not seen.
"""

from typing import Any

import msgpack
import msgspec

NODES_MAX = 1_000_000  # arrays, maps and their items in one value: each may take some 80 bytes of memory
ODD_KEYS_MAX = 10_000  # items of a map with keys that are not texts: numbers can be chosen to collide in a table

TIMESTAMP = -1  # the type of the extension


class _Nodes:
    """Makes the arrays and maps of one value, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def array(self, items: list[Any]) -> list[Any]:
        self._add(1 + len(items))
        return items

    def map(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        self._add(1 + 2 * len(pairs))
        if len(pairs) > ODD_KEYS_MAX and not all(type(key) is str for key, _ in pairs):
            raise ValueError(f"a map of {len(pairs)} keys that are not all texts, at most {ODD_KEYS_MAX} are read")
        return {tuple(key) if type(key) is list else key: value for key, value in pairs}

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > NODES_MAX:
            raise ValueError(f"more than {NODES_MAX} arrays, maps and items; decode the bytes in parts")


def decode(packed: bytes) -> Any:
    """Return the value; ValueError if it is none, has something behind it, is nested too deep or has too many parts."""
    nodes = _Nodes()
    try:
        # The walk makes no objects and finds every length that is only claimed: the unpacker would make room for it.
        msgspec.msgpack.decode(packed, type=msgspec.Raw)
        return msgpack.unpackb(
            packed,
            timestamp=0,  # a datetime would lose nanoseconds
            ext_hook=msgspec.msgpack.Ext,
            strict_map_key=False,
            list_hook=nodes.array,
            object_pairs_hook=nodes.map,
            max_array_len=NODES_MAX,
            max_map_len=NODES_MAX // 2,
            max_str_len=len(packed),
            max_bin_len=len(packed),
            max_ext_len=len(packed),
        )
    except msgpack.StackError:
        raise ValueError("it is nested too deep") from None
    except (msgspec.DecodeError, TypeError, RecursionError) as error:  # TypeError: a key that cannot be one here
        raise ValueError(str(error)) from None


def encode(value: object) -> bytes:
    """Return any value as bytes, also what `decode` gave; TypeError, ValueError or OverflowError where it cannot be."""
    return msgspec.msgpack.encode(value, enc_hook=_extension)


def _extension(value: object) -> msgspec.msgpack.Ext:
    if isinstance(value, msgpack.Timestamp):
        return msgspec.msgpack.Ext(TIMESTAMP, value.to_bytes())
    raise TypeError(f"an object of type {type(value).__name__}")
