"""`manage.py distribute`: on one machine it refuses; on a cluster, if there is one, all tables are on the nodes."""

import json

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from access.viewer import command_viewer
from categories.services import VOCABULARY_LOCK, writers_turn
from cluster import is_distributed, nodes
from search.engines.postgres import PostgresEngine
from search.query import SearchQuery
from search.run import run
from tests.cluster import URL, needs_cluster
from tests.corpus import RECORDS


def test_every_table_that_begins_with_a_memory_is_spread_and_the_vocabulary_is_on_every_node():
    assert {model._meta.db_table for model in nodes.spread_models()} == {
        "memories_memory",
        "memories_chunk",
        "memories_embeddedmemory",
        "memories_mapplace",
        "memories_memorylink",
        "memories_recall",
        "memories_recallday",
        "memories_memorymark",
        "categories_categorylink",
        "categories_conceptlink",
        "categories_entitylink",
    }
    references = {model._meta.db_table for model in nodes.reference_models()}
    assert {"memories_project", "memories_session", "categories_category", "categories_localtext"} <= references
    assert references.isdisjoint({"memories_corpus", "memories_outbox", "memories_vectorchange", "memories_memory"})
    assert references.isdisjoint({"memories_followedsource", "memories_followedrecord", "memories_sourceconflict"})


@pytest.mark.django_db
@pytest.mark.skipif(bool(URL), reason="is about a database on one machine")
def test_a_database_without_citus_is_not_distributed_and_the_message_says_what_it_takes():
    with pytest.raises(CommandError, match="shared_preload_libraries = 'citus'"):
        call_command("distribute", "--yes")
    with pytest.raises(CommandError, match="is on one machine"):
        call_command("distribute", "--status")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--shards", "1"], "a number from 2 to 1,024", id="shards"),
        pytest.param(["--connections", "65"], "a number from 1 to 64", id="connections"),
        pytest.param(["--add-node", "worker"], "like worker-3.internal:5432", id="no port"),
        pytest.param(["--add-node", "worker:70000"], "like worker-3.internal:5432", id="port"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(CommandError, match=message):
        call_command("distribute", *arguments)


def test_each_worker_gets_as_many_shards_as_connections_whose_chosen_number_stays(monkeypatch):
    assert [nodes.shards_for(workers) for workers in (1, 2, 5)] == [4, 4, 10]
    assert nodes.shards_for(3, connections=8) == 24
    monkeypatch.setattr(nodes, "_database_settings", lambda: {"citus.max_adaptive_executor_pool_size": "6"})
    pool, kept = "citus.max_adaptive_executor_pool_size", "citus.max_cached_conns_per_worker"
    usual, chosen = nodes._settings(), nodes._settings(4)
    assert (usual[pool], usual[kept]) == ("6", "2")
    assert (chosen[pool], chosen[kept]) == ("4", "4")


def test_the_status_tells_how_far_rebalancing_is_and_why_it_does_not_go_on(monkeypatch):
    details = {"tasks": [{"message": "ERROR: no space left\n"}, {}], "task_state_counts": {"runnable": 1, "blocked": 2}}
    monkeypatch.setattr(nodes, "_fetch", lambda *_: [("running", details)])
    assert nodes.rebalance_state() == "running; 2 blocked, 1 runnable; ERROR: no space left"
    monkeypatch.setattr(nodes, "_fetch", lambda *_: [])
    assert nodes.rebalance_state() == ""


@pytest.mark.django_db
def test_background_writers_take_turns_with_all_others_on_a_cluster_only():
    with transaction.atomic(), connection.cursor() as cursor:
        writers_turn()
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'ExclusiveLock'"
            " AND locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = %s)",
            [VOCABULARY_LOCK],
        )
        assert cursor.fetchone() == (bool(URL),)


def bring_in(folder):
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    call_command("import_memories", str(path), verbosity=0)


@needs_cluster
@pytest.mark.django_db
def test_on_a_cluster_nothing_is_left_to_do_and_the_status_names_every_table(capsys):
    assert is_distributed()
    call_command("distribute")
    assert "Everything is on the nodes already" in capsys.readouterr().out
    call_command("distribute", "--status")
    shown = capsys.readouterr().out
    assert "memories_memory: " in shown
    assert "categories_category: " in shown
    assert ", 4 shards, the largest shard is 1.00 × the average" in shown


@needs_cluster
@pytest.mark.django_db
def test_servers_that_confirm_writes_too_early_are_named_with_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(nodes, "_UNSAFE_SETTINGS", "SELECT 'fsync synchronous_commit'")
    call_command("distribute", "--status")
    shown = capsys.readouterr().out
    for node in nodes.nodes():
        assert f"On {node} fsync is off" in shown
        assert f"On {node} synchronous_commit is off" in shown
    assert "ALTER SYSTEM SET synchronous_commit = 'on'; SELECT pg_reload_conf();" in shown
    monkeypatch.setattr(nodes, "_UNSAFE_SETTINGS", "SELECT ''")
    assert nodes.risks() == []


@needs_cluster
@pytest.mark.django_db(transaction=True)
def test_counts_of_facets_are_made_on_the_shards_and_no_hit_travels(tmp_path, monkeypatch):
    bring_in(tmp_path)
    asked, rows = [], PostgresEngine._rows

    def recorded(statement, sql):
        asked.append((statement, dict(sql.parameters)))
        return rows(statement, sql)

    monkeypatch.setattr(PostgresEngine, "_rows", staticmethod(recorded))
    assert run(SearchQuery(text="water"), command_viewer()).total == 2

    for statement, parameters in asked:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {statement}", parameters)
            plan = "\n".join(line for (line,) in cursor.fetchall())
        for part in plan.split("->  Distributed Subplan")[1:]:
            # Each part counts on the shards, or is cut there to a page.
            assert "Aggregate" in part or "Limit" in part, part
