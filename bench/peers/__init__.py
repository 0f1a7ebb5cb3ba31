"""All who are measured, in the same run, on the same records and queries: our engines and the alternatives to them."""

from collections.abc import Callable
from pathlib import Path

from bench.peers.base import Peer
from bench.peers.duckdb import DuckdbPeer
from bench.peers.engines import PostgresPeer, TantivyEnginePeer, TantivyPeer
from bench.peers.sqlite import SqlitePeer
from bench.peers.tantivy_raw import TantivyRawPeer

# In the order in which they are loaded: the derived index follows the database. Each is made in a folder of its own.
PEERS: dict[str, Callable[[Path], Peer]] = {
    "postgres": PostgresPeer,
    "tantivy": TantivyPeer,
    "tantivy-engine": TantivyEnginePeer,
    "sqlite": SqlitePeer,
    "duckdb": DuckdbPeer,
    "tantivy-raw": TantivyRawPeer,
}
