"""The alternatives that are measured beside Mnemoscope, in the same run, on the same records and queries."""

from collections.abc import Callable
from pathlib import Path

from bench.peers.base import Peer
from bench.peers.sqlite import SqlitePeer

# Each is made in an empty folder of its own.
PEERS: tuple[Callable[[Path], Peer], ...] = (SqlitePeer,)
