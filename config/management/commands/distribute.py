"""`manage.py distribute`: moves the database onto the nodes of a Citus cluster, and shows how it lies there."""

import os
import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cluster import is_distributed, nodes
from text.formatting import plural
from web.command_line import command

_COST = (
    "This is for a team that outgrows one machine; below some ten million memories one machine answers sooner. The "
    "search index of one machine and the replica of the vectors do not exist in a cluster: SEARCH_ENGINE=postgres "
    "answers everything. There is no way back but a backup: make one first."
)

_WRITERS_WAIT = "Writers wait while a shard is copied, since not all servers have wal_level = logical."


class Command(BaseCommand):
    help = "Check a Citus cluster, show what moving this database onto its nodes would do, and with --yes do it."
    requires_system_checks: list[str] = []  # they are for the start of the site; this command makes its own

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--yes", action="store_true", help="do what the plan says, or continue after a failure")
        what.add_argument("--status", action="store_true", help="nodes, tables, shards, sizes and skew")
        what.add_argument("--add-node", metavar="HOST:PORT", help="add a server; --rebalance then gives it shards")
        what.add_argument("--rebalance", action="store_true", help="spread the shards evenly over all servers")
        parser.add_argument(
            "--shards",
            type=int,
            metavar="N",
            help="shards of each spread table, from 2 to 1,024: at least as many as there will ever be servers "
            "(--connections for each worker)",
        )
        parser.add_argument(
            "--connections",
            type=int,
            metavar="N",
            help="connections to each server in one search, from 1 to 64: the processors of a server that may work for "
            f"one search ({nodes.CONNECTIONS})",
        )

    def handle(
        self,
        *,
        yes: bool,
        status: bool,
        add_node: str | None,
        rebalance: bool,
        shards: int | None,
        connections: int | None,
        **options: Any,
    ) -> None:
        if shards is not None and not 2 <= shards <= 1024:
            raise CommandError(f"--shards {shards}: it is a number from 2 to 1,024.")
        if connections is not None and not 1 <= connections <= 64:
            raise CommandError(f"--connections {connections}: it is a number from 1 to 64.")
        # The name distinguishes the connections of this process from those of others.
        os.environ.update(PGAPPNAME=f"distribute {os.getpid()}")
        try:
            if status:
                self._status()
            elif add_node is not None:
                self._add_node(add_node)
            elif rebalance:
                nodes.rebalance()
                self.stdout.write(
                    "Shards are being moved in the background, while the site works on. See --status."
                    + ("" if nodes.writers_go_on() else f" {_WRITERS_WAIT}")
                )
            else:
                self._distribute(yes, shards, connections)
        except nodes.ClusterError as error:
            raise CommandError(str(error)) from None

    def _distribute(self, yes: bool, shards: int | None, connections: int | None) -> None:
        if found := nodes.problems():
            raise CommandError("Not possible yet:\n" + "\n".join(f"- {one}" for one in found))
        self._warn()
        plan = nodes.plan(connections)
        if plan.is_empty:
            self.stdout.write(f"Everything is on the nodes already. {command('distribute --status')} shows where.")
            return
        workers = sum(not node.is_coordinator for node in nodes.nodes())
        shards = shards or nodes.shards_for(workers, connections)
        self.stdout.write(f"Citus {nodes.citus_version()}, {plural(workers, 'worker')}. The plan:")
        if plan.references:
            self.stdout.write(f"- to every node: {', '.join(plan.references)}")
        if plan.spread:
            self.stdout.write(f"- spread over {shards} shards: {', '.join(plan.spread)}")
        if plan.indexes:
            self.stdout.write(f"- built on the nodes after the move: {', '.join(plan.indexes)}")
        if plan.settings:
            self.stdout.write(f"- settings of the database on every node: {', '.join(plan.settings)}")
        if plan.bytes:
            self.stdout.write(
                f"{size_text(plan.bytes)} move. Until the end the coordinator keeps its copy, and the workers together "
                f"need as much again: see that each has {size_text(2 * plan.bytes // max(workers, 1))} free, which "
                "Postgres cannot tell."
            )
            self.stdout.write(_COST)
        if not yes:
            more = f" --connections {connections}" if connections else ""
            self.stdout.write(f"Nothing was changed. Do it: {command(f'distribute --yes --shards {shards}{more}')}")
            return
        # Two at a time are impossible: it refuses while anybody else is connected.
        nodes.distribute(shards=shards, connections=connections, report=self.stdout.write)
        self.stdout.write(self.style.SUCCESS("Done. Start the site with SEARCH_ENGINE=postgres."))

    def _warn(self) -> None:
        for risk in nodes.risks():
            self.stdout.write(self.style.WARNING(risk))

    def _add_node(self, address: str) -> None:
        found = re.fullmatch(r"(?P<host>[^\s:]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})", address)
        if not found or not 0 < int(found["port"]) < 65536:
            raise CommandError(f"--add-node {address}: write it like worker-3.internal:5432.")
        nodes.node_add(found["host"].strip("[]"), int(found["port"]))
        self.stdout.write(
            f"Added {address}. It has the vocabulary; shards come by {command('distribute --rebalance')}."
        )

    def _status(self) -> None:
        if not is_distributed():
            raise CommandError(f"This database is on one machine. {command('distribute')} shows what moving it takes.")
        self.stdout.write(f"Citus {nodes.citus_version()}")
        for state in nodes.node_states():
            role = "coordinator" if state.node.is_coordinator else "worker"
            self.stdout.write(
                f"{state.node} ({role}{'' if state.node.is_active else ', NOT ACTIVE'}): "
                f"{plural(state.shards, 'shard')}, {size_text(state.bytes)}"
            )
        for table in nodes.table_states():
            where = "every node" if table.kind == "reference" else plural(table.shards, "shard")
            skew = "" if table.kind == "reference" else f", the largest shard is {table.skew:.2f} × the average"
            self.stdout.write(f"{table.name}: {size_text(table.bytes)}, {where}{skew}")
        if moving := nodes.rebalance_state():
            self.stdout.write(f"Rebalancing: {moving}")
        self._warn()
        plan = nodes.plan()
        if not plan.is_empty:
            left = ", ".join([*plan.references, *plan.spread, *plan.indexes, *plan.settings])
            self.stdout.write(f"Not done yet: {left}. Continue: {command('distribute --yes')}")


def size_text(count: int) -> str:
    """A number of bytes in the largest unit that leaves a whole number before the decimal point."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
