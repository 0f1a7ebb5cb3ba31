"""Files of numpy arrays: written once, and mapped into the memory of every process that reads them.

A file consists of a magic number, the length and the checksum of a header, the header as JSON, and the arrays, each
aligned to 64 bytes. The header has the type, length, offset and checksum of each array.
"""

import errno
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_MAGIC = b"MNEMOPRT"
_START = len(_MAGIC) + 16
_ALIGNED = 64


# Errors of this process or machine: no memory or file handles are left.
_OUT_OF_RESOURCES = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class DamagedError(Exception):
    """A file of the derived data does not hold what was written."""


def is_out_of_resources(error: DamagedError) -> bool:
    """Whether the file could not be opened because this process or machine is short of resources."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _OUT_OF_RESOURCES


def arrays_write(path: Path, head: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write one-dimensional arrays and the header fields in `head`, and flush them to disk."""
    described: dict[str, list[Any]] = {}
    at = 0
    for name, array in arrays.items():
        described[name] = [str(array.dtype), len(array), at, _checksum(array)]
        at += -(-array.nbytes // _ALIGNED) * _ALIGNED
    text = json.dumps({**head, "arrays": described}, ensure_ascii=False).encode()
    begin = -(-(_START + len(text)) // _ALIGNED) * _ALIGNED
    with path.open("wb") as file:
        file.write(_MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.seek(-(-file.tell() // _ALIGNED) * _ALIGNED)
            file.write(np.ascontiguousarray(array).data)
        # The last array may be empty, and a seek alone does not lengthen a file.
        file.truncate(begin + at)
        file.flush()
        os.fsync(file.fileno())


def arrays_map(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header of a file and its read-only arrays by name. Raise DamagedError if the file is incomplete."""
    try:
        # A plain array over the mapped file: indexing np.memmap objects is slower than a small look-up.
        data = np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path.name}: {error}") from error
    if len(data) < _START or bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise DamagedError(f"{path.name}: is not a file of the index")
    length = int.from_bytes(bytes(data[8:16]), "little")
    text = bytes(data[_START : _START + length])
    if zlib.crc32(text) != int.from_bytes(bytes(data[16:24]), "little"):
        raise DamagedError(f"{path.name}: its head is damaged")
    head = json.loads(text)
    begin = -(-(_START + length) // _ALIGNED) * _ALIGNED
    arrays: dict[str, Array] = {}
    for name, (kind, count, at, _) in head["arrays"].items():
        size = count * np.dtype(kind).itemsize
        if begin + at + size > len(data):
            raise DamagedError(f"{path.name}: is cut off")
        arrays[name] = data[begin + at : begin + at + size].view(kind)
    return head, arrays


def arrays_verify(path: Path) -> None:
    """Read a whole file and compare its checksums. Raise DamagedError if any differs."""
    head, arrays = arrays_map(path)
    for name, (_, _, _, checksum) in head["arrays"].items():
        if _checksum(arrays[name]) != checksum:
            raise DamagedError(f"{path.name}: {name} is damaged")


def bits_write(path: Path, mask: Mask) -> None:
    """Write a mask as one bit per element, and flush it to disk."""
    with path.open("wb") as file:
        file.write(np.packbits(mask).tobytes())
        file.flush()
        os.fsync(file.fileno())


def bits_read(path: Path, size: int) -> Mask:
    """Return a mask of `size` elements. Raise DamagedError."""
    try:
        bits = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DamagedError(f"{path.name}: {error}") from error
    if len(bits) != -(-size // 8):
        raise DamagedError(f"{path.name}: is cut off")
    mask: Mask = np.unpackbits(bits, count=size) == 1
    return mask


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data)
