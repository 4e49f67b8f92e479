"""Texts by the million: uids, names and words as Arrow arrays, without a Python object for each."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wakeq.protocol.uid import NUMBER_DIGITS, PAIR_BASE, PAIRS, UID_CHARACTERS, prefix

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_PAIR_CODES = np.frombuffer("".join(PAIRS).encode(), dtype="u2")
_QUAD_BASE = PAIR_BASE**2


def uids_of(queue_ids: Ints, numbers: Ints, known: Bools) -> pa.Array:
    """Return the uid of each message; null where it is not known."""
    size = len(numbers)
    text = np.zeros((size, UID_CHARACTERS // 2), dtype="u2")
    ids, which = _distinct(np.where(known, queue_ids, 0))
    prefixes = np.frombuffer("".join(prefix(int(queue_id)) for queue_id in ids).encode(), dtype="u8")
    text.view("u8")[:, 0] = prefixes[which]
    high, low = np.divmod(np.where(known, numbers, 0), _QUAD_BASE)
    for column, half in ((4, high), (6, low)):
        if half.any():
            first, second = np.divmod(half.astype(np.int32), np.int32(PAIR_BASE))
            text[:, column], text[:, column + 1] = _PAIR_CODES[first], _PAIR_CODES[second]
        else:
            text[:, column : column + 2] = _PAIR_CODES[0]
    offsets = np.arange(size + 1, dtype=np.int32) * UID_CHARACTERS
    return pa.Array.from_buffers(pa.string(), size, [bitmap(known), pa.py_buffer(offsets), pa.py_buffer(text)])


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """Return the different values, and which of them each is; cheap where there are few."""
    if len(values) and (values == values[0]).all():
        return values[:1], np.zeros(len(values), dtype=np.int64)
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)


def words(texts: list[str | None], which: npt.NDArray[np.integer]) -> pa.Array:
    """Return the text that each number stands for."""
    return pa.array(texts, pa.string()).take(pa.array(which))


def bitmap(known: Bools) -> pa.Buffer | None:
    """Return Arrow's validity bits; nothing where all are valid."""
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))


def column(values: npt.NDArray[np.generic], kind: pa.DataType, known: Bools | None = None) -> pa.Array:
    """Return numbers as a column; null where they are not known."""
    raw = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(raw), [None if known is None else bitmap(known), pa.py_buffer(raw)])


assert UID_CHARACTERS == 2 * NUMBER_DIGITS, "a uid is four pairs of the queue and four of the number"
