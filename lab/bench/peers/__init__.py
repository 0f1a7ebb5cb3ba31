"""The participants, measured in one run on the same records and queries: our engines and alternatives to them."""

from collections.abc import Callable
from pathlib import Path

from lab.bench.peers.base import Peer
from lab.bench.peers.duckdb import DuckdbPeer
from lab.bench.peers.engines import PostgresPeer, TantivyEnginePeer, TantivyPeer
from lab.bench.peers.sqlite import SqlitePeer
from lab.bench.peers.tantivy_raw import TantivyRawPeer

# In loading order: the derived index follows the database. Each is made in a folder of its own.
PEERS: dict[str, Callable[[Path], Peer]] = {
    "postgres": PostgresPeer,
    "tantivy": TantivyPeer,
    "tantivy-engine": TantivyEnginePeer,
    "sqlite": SqlitePeer,
    "duckdb": DuckdbPeer,
    "tantivy-raw": TantivyRawPeer,
}
