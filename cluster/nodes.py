"""A Citus cluster: which table lies where, moving a database onto the nodes, and its state. See docs/growing.md.

`distribute` moves all tables in one transaction: after a failure the database is as it was. The later steps
(indexes, settings, the space of the local copies) are continued by the next call.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import DatabaseError, connection, models, transaction
from django.db.migrations.executor import MigrationExecutor
from pgvector.django import HnswIndex

import cluster
from web.command_line import command

MIN_CITUS = 14
# Connections to each worker in one search where no number is asked for, and shards on each.
CONNECTIONS = 2
_EXTENSIONS = ("vector", "pg_trgm")
# Memories and their children are spread by the memory's id; the vocabulary and what memories refer to is on every node.
# Tables of other apps are on the coordinator alone, and so are these of the two apps: one row, a queue, or what is
# followed, which is read on the machine of the site.
_LOCAL = {
    "memories_corpus",
    "memories_followedrecord",
    "memories_followedsource",
    "memories_outbox",
    "memories_sourceconflict",
    "memories_vectorchange",
}
_MEMORIES = "memories_memory"
_SPREAD_APPS = ("memories", "categories")
# Settings of the database on every node. Settings of a transaction do not reach the shards. Writers change both
# memories and the vocabulary, which Citus allows only if statements about memories go to one shard after the other.
_SETTINGS = {
    "citus.multi_shard_modify_mode": "sequential",
    "hnsw.ef_search": "400",
    "hnsw.iterative_scan": "strict_order",
    "hnsw.max_scan_tuples": "2000000",
    "hnsw.scan_mem_multiplier": "8",
    # As a search on one machine sets them.
    "jit": "off",
    "work_mem": "64MB",
}
# Connections of a session to a worker. Citus opens one more for each 10 ms that a statement takes, up to the first, and
# closes all but the second at the end of the transaction; opening one takes as long as many a search.
_CONNECTION_SETTINGS = ("citus.max_adaptive_executor_pool_size", "citus.max_cached_conns_per_worker")


class ClusterError(Exception):
    """The cluster cannot do this. The message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class Node:
    """A server of the cluster. The coordinator is in group 0."""

    name: str
    port: int
    group: int
    is_active: bool

    @property
    def is_coordinator(self) -> bool:
        return self.group == 0

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of `distribute`. All are names of tables or indexes, in the order of the work."""

    references: tuple[str, ...]
    spread: tuple[str, ...]
    indexes: tuple[str, ...]
    settings: tuple[str, ...]
    bytes: int
    """The size of the tables to move, on the coordinator."""

    @property
    def is_empty(self) -> bool:
        return not (self.references or self.spread or self.indexes or self.settings)


@dataclass(frozen=True, slots=True)
class TableState:
    """A table of the cluster. `skew` is the largest shard divided by the average one."""

    name: str
    kind: str
    shards: int
    bytes: int
    skew: float


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with the shards on it."""

    node: Node
    shards: int
    bytes: int


def spread_models() -> list[type[models.Model]]:
    """Memories first, then the tables whose primary key begins with a memory."""
    return [apps.get_model("memories", "Memory"), *filter(_is_child, _models())]


def reference_models() -> list[type[models.Model]]:
    """The tables that are on every node."""
    others = _LOCAL | {_MEMORIES}
    return [model for model in _models() if model._meta.db_table not in others and not _is_child(model)]


def _models() -> Iterator[type[models.Model]]:
    for app in _SPREAD_APPS:
        yield from apps.get_app_config(app).get_models(include_auto_created=True)


def _is_child(model: type[models.Model]) -> bool:
    key = model._meta.pk
    columns = key.field_names if isinstance(key, models.CompositePrimaryKey) else (key.attname,)
    return columns[0] == "memory_id"


def _tables(found: Sequence[type[models.Model]]) -> list[str]:
    return [model._meta.db_table for model in found]


# --- what there is --------------------------------------------------------------------------------------------------


def _fetch(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def citus_version() -> str:
    """The version of Citus in this database; empty if it has none."""
    found = _fetch("SELECT extversion FROM pg_extension WHERE extname = 'citus'")
    return str(found[0][0]) if found else ""


def nodes() -> list[Node]:
    """The nodes, the coordinator first."""
    rows = _fetch(
        "SELECT nodename, nodeport, groupid, isactive FROM pg_dist_node WHERE noderole = 'primary'"
        " ORDER BY groupid <> 0, nodename, nodeport"
    )
    return [Node(*row) for row in rows]


def problems() -> list[str]:
    """Why this database cannot be distributed, each with its remedy."""
    version = citus_version()
    if not version:
        return [
            "This database has no Citus. Start all servers with shared_preload_libraries = 'citus', make a database of "
            "the same name on each, and in each: CREATE EXTENSION citus; then vector and pg_trgm. The embedded "
            "Postgres has no Citus: move the data to the coordinator by `backup` and `restore` first."
        ]
    found = []
    if int(version.split(".")[0]) < MIN_CITUS:
        found.append(f"Citus is {version}; {MIN_CITUS} or later is needed: ALTER EXTENSION citus UPDATE.")
    found += _node_problems()
    if settings.SEARCH_ENGINE != "postgres":
        found.append(
            f"SEARCH_ENGINE is {settings.SEARCH_ENGINE}: the derived index of one machine cannot follow a cluster. Set "
            "SEARCH_ENGINE=postgres wherever this database is used."
        )
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        found.append(f"Migrations are pending: {command('migrate')}")
    return found


def _node_problems() -> list[str]:
    known = nodes()
    found = []
    if not any(node.is_coordinator for node in known):
        found.append("The coordinator is not registered: SELECT citus_set_coordinator_host('its address', its port);")
    if not any(not node.is_coordinator for node in known):
        found.append(f"There are no workers: {command('distribute --add-node HOST:PORT')}")
    found += [
        f"The node {node} is not active: SELECT citus_activate_node('{node.name}', {node.port}); or remove it."
        for node in known
        if not node.is_active
    ]
    if found:
        return found
    own = _extensions_here()
    for node, success, result in _on_workers(_EXTENSION_LIST):
        if not success:
            found.append(f"The node {node} does not answer: {result}")
        elif result != own:
            found.append(f"The node {node} has {result}, the coordinator {own}: install the same versions everywhere.")
    return found


def risks() -> list[str]:
    """The servers that confirm writes before they are on the disk, each with the remedy."""
    rows = _fetch(
        "SELECT format('%%s:%%s', nodename, nodeport), unnest(string_to_array(result, ' ')) AS setting"
        " FROM run_command_on_all_nodes(%s) JOIN pg_dist_node USING (nodeid) WHERE success ORDER BY groupid, setting",
        [_UNSAFE_SETTINGS],
    )
    return [
        f"On {node} {setting} is off: writes that were confirmed are lost when it stops at once. There: "
        f"ALTER SYSTEM SET {setting} = 'on'; SELECT pg_reload_conf();"
        for node, setting in rows
    ]


_UNSAFE_SETTINGS = (
    "SELECT coalesce(string_agg(name, ' '), '') FROM pg_settings"
    " WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'"
)
_EXTENSION_LIST = (
    "SELECT 'PostgreSQL ' || current_setting('server_version_num')::int / 10000 || coalesce((SELECT"
    " string_agg(', ' || extname || ' ' || extversion, '' ORDER BY extname) FROM pg_extension"
    " WHERE extname IN ('citus', 'vector', 'pg_trgm')), '')"
)


def _extensions_here() -> str:
    return str(_fetch(_EXTENSION_LIST)[0][0])


def _on_workers(statement: str) -> list[tuple[str, bool, str]]:
    return [
        (f"{name}:{port}", success, str(result))
        for name, port, success, result in _fetch(
            "SELECT nodename, nodeport, success, result FROM run_command_on_workers(%s)", [statement]
        )
    ]


def others_connected() -> int:
    """The sessions of others in this database: a running site, a worker, an import."""
    return int(
        _fetch(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND application_name NOT LIKE 'citus%%'"
            " AND (application_name = '' OR application_name <> current_setting('application_name'))"
        )[0][0]
    )


def _settings(connections: int | None = None) -> dict[str, str]:
    """The settings of the database. Without a number of connections, the present one or the usual one."""
    present = _database_settings()
    chosen = {name: str(connections or present.get(name, CONNECTIONS)) for name in _CONNECTION_SETTINGS}
    return _SETTINGS | chosen


def plan(connections: int | None = None) -> Plan:
    """The work that is left."""
    present = _database_settings()
    moved = {name for (name,) in _fetch("SELECT logicalrelid::text FROM pg_dist_partition")}
    references = [name for name in _tables(reference_models()) if name not in moved]
    spread = [name for name in _tables(spread_models()) if name not in moved]
    ((size,),) = _fetch(
        "SELECT coalesce(sum(pg_total_relation_size(name::regclass)), 0) FROM unnest(%s::text[]) AS moving (name)",
        [[*references, *spread]],
    )
    return Plan(
        tuple(references),
        tuple(spread),
        tuple(index.name for _, index in _large_indexes(spread)),
        tuple(name for name, value in _settings(connections).items() if present.get(name) != value),
        int(size),
    )


def _large_indexes(moving: Collection[str]) -> list[tuple[type[models.Model], models.Index]]:
    """The GIN and HNSW indexes of tables to move, and missing ones: building them takes less time than filling them."""
    present = {name for (name,) in _fetch("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")}
    return [
        (model, index)
        for model in spread_models()
        for index in model._meta.indexes
        if isinstance(index, GinIndex | HnswIndex) and (model._meta.db_table in moving or index.name not in present)
    ]


def _database_settings() -> dict[str, str]:
    rows = _fetch(
        "SELECT unnest(setconfig) FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase"
        " WHERE datname = current_database() AND setrole = 0"
    )
    return dict(row.split("=", 1) for (row,) in rows)


# --- what it does -----------------------------------------------------------------------------------------------------


def shards_for(workers: int, connections: int | None = None) -> int:
    """The number of shards where none is asked for: one for each connection of a search. More take more time."""
    return max(workers, 2) * (connections or CONNECTIONS)


def distribute(*, shards: int, connections: int | None = None, report: Callable[[str], None]) -> None:
    """Do what the plan says. Raises ClusterError; then the tables are all moved, or none is."""
    if found := problems():
        raise ClusterError("\n".join(found))
    if others := others_connected():
        raise ClusterError(
            f"{others} other session{'s are' if others > 1 else ' is'} connected to this database. Stop the site, its "
            "workers and imports first: moving the tables locks them."
        )
    unmoved = plan(connections)
    with connection.cursor() as cursor:
        cursor.execute("SET citus.multi_shard_modify_mode = 'sequential'")
    try:
        if unmoved.references or unmoved.spread:
            _move(unmoved, shards, report)
        cluster.forget()
        _index(report)
        _free(report)
        _configure(report, connections)
    except DatabaseError as error:
        raise ClusterError(f"{str(error).strip()}\nNothing is lost: call it again to continue.") from error


@transaction.atomic
def _move(unmoved: Plan, shards: int, report: Callable[[str], None]) -> None:
    moving = [*unmoved.references, *unmoved.spread]
    with connection.cursor() as cursor:
        # Citus moves no table with triggers; without them the outbox of the derived index gets no entries.
        cursor.execute("UPDATE memories_corpus SET indexed = false, generation = '', replica = '' WHERE id = 1")
        cursor.execute("DELETE FROM memories_outbox")
        cursor.execute("DELETE FROM memories_vectorchange")
        for table, name in _fetch(
            "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal"
            " AND tgrelid = ANY(%s::text[]::regclass[])",
            [moving],
        ):
            cursor.execute(f'DROP TRIGGER "{name}" ON {table}')
        keys = _fetch(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), confrelid::regclass::text"
            " FROM pg_constraint WHERE contype = 'f'"
            " AND (conrelid = ANY(%s::text[]::regclass[]) OR confrelid = ANY(%s::text[]::regclass[]))",
            [moving, moving],
        )
        for table, name, _, _ in keys:
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        for _, index in _large_indexes(unmoved.spread):
            cursor.execute(f'DROP INDEX IF EXISTS "{index.name}"')
        _functions_spread(cursor)
        for table in unmoved.references:
            report(f"{table}: to every node")
            cursor.execute("SELECT create_reference_table(%s)", [table])
        for table in unmoved.spread:
            report(f"{table}: by {'id' if table == _MEMORIES else 'memory_id'}")
            if table == _MEMORIES:
                cursor.execute("SELECT create_distributed_table(%s, 'id', shard_count := %s)", [table, shards])
            else:
                cursor.execute(
                    "SELECT create_distributed_table(%s, 'memory_id', colocate_with := %s)",
                    [table, _MEMORIES],
                )
        there = {name for (name,) in _fetch("SELECT logicalrelid::text FROM pg_dist_partition")}
        for table, name, definition, target in keys:
            if {table, target} <= there:
                cursor.execute(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}')


def _functions_spread(cursor: Any) -> None:
    """Make our functions on the workers, where statements are executed."""
    for (name,) in _fetch(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
        " AND prorettype <> 'trigger'::regtype"
        " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')"
    ):
        cursor.execute("SELECT create_distributed_function(%s)", [name])


def _index(report: Callable[[str], None]) -> None:
    for model, index in _large_indexes(()):
        report(f"{index.name}: built on the nodes")
        with connection.schema_editor() as editor:
            # All nodes work at the same time.
            editor.execute("SET LOCAL citus.multi_shard_modify_mode = 'parallel'")
            editor.add_index(model, index)


def _free(report: Callable[[str], None]) -> None:
    """Remove the rows that were copied to the nodes from the coordinator."""
    for table in reversed([*_tables(reference_models()), *_tables(spread_models())]):
        ((size,),) = _fetch("SELECT pg_relation_size(%s::regclass)", [table])
        if size:
            _fetch("SELECT truncate_local_data_after_distributing_table(%s)", [table])
    report("the copies on the coordinator: removed")
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {', '.join(_tables(spread_models()))}")


def _configure(report: Callable[[str], None], connections: int | None = None) -> None:
    """Set the settings of the database, which Citus repeats on every node; new connections have them."""
    ((name,),) = _fetch("SELECT quote_ident(current_database())")
    with connection.cursor() as cursor:
        for setting, value in _settings(connections).items():
            cursor.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    report("settings of the database: made on every node")


def node_add(host: str, port: int) -> None:
    """Add a worker, with a copy of all reference tables. It gets shards by `rebalance`."""
    if not citus_version():
        raise ClusterError(problems()[0])
    try:
        if not any(node.is_coordinator for node in nodes()):
            raise ClusterError("\n".join(_node_problems()[:1]))
        _fetch("SELECT citus_add_node(%s, %s)", [host, port])
        if cluster.is_distributed():
            _fetch("SELECT replicate_reference_tables(%s)", ["auto" if writers_go_on() else "block_writes"])
            _configure(lambda _: None)
    except DatabaseError as error:
        raise ClusterError(str(error).strip()) from error


def writers_go_on() -> bool:
    """Whether shards can be copied while they are written to, which takes wal_level = logical on all servers."""
    levels = _fetch("SELECT DISTINCT result FROM run_command_on_all_nodes('SHOW wal_level')")
    return levels == [("logical",)]


def rebalance() -> None:
    """Start moving shards until all workers have as many. It goes on in the background, and the site works on."""
    try:
        mode = "auto" if writers_go_on() else "block_writes"
        _fetch("SELECT citus_rebalance_start(shard_transfer_mode := %s)", [mode])
    except DatabaseError as error:
        raise ClusterError(str(error).strip()) from error


def rebalance_state() -> str:
    """The state of the last rebalancing in words; empty if there was none."""
    found = _fetch("SELECT state, details FROM citus_rebalance_status() ORDER BY job_id DESC LIMIT 1")
    if not found:
        return ""
    state, details = found[0]
    details = json.loads(details) if isinstance(details, str) else details
    counts = ", ".join(f"{number} {name}" for name, number in sorted(details.get("task_state_counts", {}).items()))
    errors = [task["message"].strip() for task in details.get("tasks", ()) if task.get("message")]
    return "; ".join([str(state), *([counts] if counts else []), *errors[:1]])


def table_states() -> list[TableState]:
    """The tables of the cluster, the largest first."""
    rows = _fetch(
        "SELECT table_name::text, citus_table_type, count(*), sum(shard_size)::bigint,"
        " coalesce(max(shard_size) / nullif(avg(shard_size), 0), 1)::float8 FROM citus_shards"
        " WHERE citus_table_type IN ('distributed', 'reference') GROUP BY 1, 2 ORDER BY 4 DESC, 1"
    )
    return [TableState(*row) for row in rows]


def node_states() -> list[NodeState]:
    """The nodes with the shards of spread tables on them."""
    rows = _fetch(
        "SELECT nodename, nodeport, count(*), sum(shard_size)::bigint FROM citus_shards"
        " WHERE citus_table_type = 'distributed' GROUP BY 1, 2"
    )
    found = {(name, port): (shards, size) for name, port, shards, size in rows}
    return [NodeState(node, *found.get((node.name, node.port), (0, 0))) for node in nodes()]
