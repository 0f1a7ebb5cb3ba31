"""The protocol of claude-mem's worker, with the arguments that its clients send."""

import httpx2
import pytest
from django.contrib.auth.models import User

from access.models import AuditEvent
from access.sign_in import owner_ensure
from memories.models import Memory
from search.models import SavedView


def text_of(response):
    assert response.status_code == 200, response.text
    (content,) = response.json()["content"]
    assert content["type"] == "text"
    return content["text"]


def test_worker_answers_as_that_of_claude_mem(shared_ids, worker):
    with httpx2.Client(base_url=worker) as http:
        assert http.get("/api/health").json() == http.get("/api/readiness").json() == {"status": "ok"}
        found = text_of(http.get("/api/search?query=crane&type=bugfix&limit=5&orderBy=date_desc&dateStart=2024-01-01"))
        assert found.startswith("Found 1 result(s)")
        assert f"| #{shared_ids['b1']} | 2024-02-01 07:00 | Crane brake slips | bugfix | boat |" in found
        assert "Found 6 result(s)" in text_of(http.get("/api/search?query=tea&type=observations&limit=2"))
        assert "4 more: use offset=2" in text_of(http.get("/api/search?query=tea&limit=2"))
        assert text_of(http.get("/api/search?query=zeppelin")).startswith("Found 0 result(s)")
        around = text_of(http.get(f"/api/timeline?anchor={shared_ids['b1']}&depth_before=1&depth_after=1"))
        assert "Crane brake slips ← |" in around
        assert around.count("| #") == 3
        body = {"ids": [shared_ids["b5"], shared_ids["t1"]], "orderBy": "date_asc", "project": "tea"}
        (only,) = http.post("/api/observations/batch", json=body).json()
        assert (only["id"], only["type"], only["project"]) == (shared_ids["t1"], "decision", "tea")
        assert only["narrative"].startswith("Boiling water")
        assert only["created_at_epoch"] == 1_704_448_800_000


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("GET", "/api/search?query=tea", {"Host": "evil.example"}, 403, id="another name"),
        pytest.param("GET", "/api/search?query=tea", {"Host": "localhost."}, 403, id="a name with a dot at its end"),
        pytest.param("GET", "/api/search?query=tea", {"Origin": "http://127.0.0.1"}, 403, id="a page"),
        pytest.param("GET", "/api/search?query=tea", {"Sec-Fetch-Site": "cross-site"}, 403, id="an image of a page"),
        pytest.param("GET", "/api/search?query=tea&dateStart=yesterday", {}, 422, id="no date"),
        pytest.param("POST", "/api/memories", {}, 404, id="a write"),
        pytest.param("GET", "/explore/", {}, 404, id="a page of the site"),
        pytest.param("GET", "/mcp", {}, 404, id="the other door"),
        pytest.param("POST", "/api/observations/batch", {}, 400, id="no body"),
        pytest.param("POST", "/api/corpus/nothing/query", {}, 404, id="no such corpus"),
        pytest.param("POST", "/api/corpus", {}, 400, id="no name"),
        pytest.param("GET", "/api/context/inject", {}, 400, id="no project"),
        pytest.param("GET", "/api/timeline?anchor=nowhere", {}, 422, id="no anchor"),
        pytest.param("GET", "/api/timeline?anchor=999999", {}, 404, id="no such memory"),
    ],
)
def test_worker_refuses_all_else(shared_ids, worker, method, path, headers, status):
    with httpx2.Client(base_url=worker) as http:
        response = http.request(method, path, headers=headers)
        assert (response.status_code, list(response.json())) == (status, ["error"])
    assert Memory.objects.count() == 16


def test_site_is_not_opened_by_it(shared_ids, site, worker):
    with httpx2.Client(base_url=site) as http:
        assert http.get("/api/search?query=tea").status_code == 401


@pytest.mark.parametrize(
    ("arguments", "titles"),
    [
        pytest.param("obs_type=bugfix,decision&project=boat", ["Teak for the deck", "Crane brake slips"], id="types"),
        pytest.param(
            "concepts=hospitality,safety&limit=2", ["Launch in five steps", "Teak for the deck"], id="concepts"
        ),
        pytest.param(
            "platformSource=claude&orderBy=date_asc",
            ["Kettle valve stuck", "State-of-the-art winch", "Serve tea on the boat"],
            id="platform",
        ),
        pytest.param(
            "type=observations&offset=1&limit=2&project=boat",
            ["State-of-the-art winch", "Überführung nach Kiel"],
            id="offset",
        ),
        pytest.param("type=sessions", [], id="sessions"),
        pytest.param(
            "files=nowhere.py,kettle&isFolder=false&what=1",
            ["Kettle valve stuck", "Brew green tea at 70 °C"],
            id="files",
        ),
        pytest.param("query=sugar&orderBy=best&limit=many", ["Sugar on every table"], id="unreadable order and limit"),
    ],
)
def test_arguments_of_its_clients_are_understood(shared_ids, worker, arguments, titles):
    with httpx2.Client(base_url=worker) as http:
        text = text_of(http.get(f"/api/search?{arguments}"))
    shown = [line.split(" | ")[2] for line in text.splitlines() if line.startswith("| #")]
    assert shown == titles, text


def test_remarks_say_how_arguments_were_understood(shared_ids, worker):
    with httpx2.Client(base_url=worker) as http:
        assert "Mnemoscope keeps no sessions of their own" in text_of(http.get("/api/search?type=sessions"))
        assert "orderBy=best is unknown and was ignored" in text_of(http.get("/api/search?query=tea&orderBy=best"))
        assert "limit is 100: from 1 to 100 are possible" in text_of(http.get("/api/search?query=tea&limit=5000"))
        wrong = http.get("/api/search?query=tea&dateStart=yesterday").json()["error"]
        assert wrong.endswith("is not a date. write YYYY-MM-DD, or an ISO 8601 time such as 2026-03-01T14:00Z")


def test_timeline_stands_at_a_session_and_at_a_time(shared_ids, worker):
    b1 = Memory.objects.select_related("project").get(pk=shared_ids["b1"])
    session = b1.project.sessions.create(external_id="morning")
    Memory.objects.filter(pk=b1.pk).update(session=session)
    with httpx2.Client(base_url=worker) as http:
        for anchor in (f"S{session.pk}", f"%23S{session.pk}", "2024-02-01T07:00:00Z"):
            text = text_of(http.get(f"/api/timeline?anchor={anchor}&depth_before=0&depth_after=0&project=boat"))
            assert "Crane brake slips ←" in text, anchor
        assert "Session S999 has no memory here" in http.get("/api/timeline?anchor=S999").json()["content"][0]["text"]
        both = http.get("/api/timeline?anchor=1&query=tea").json()
        assert (both["isError"], both["content"][0]["text"]) == (True, "Error: give anchor or query, not both.")


def test_session_start_gets_the_context_as_text(shared_ids, worker):
    with httpx2.Client(base_url=worker) as http:
        response = http.get("/api/context/inject?projects=boat,tea&full=true&colors=false&platformSource=claude")
        assert response.headers["content-type"].startswith("text/plain")
        assert response.text.startswith("# boat, tea: 14 memories")
        assert f"#{shared_ids['t7']} 2024-11-01 decision: Sugar on every table (tea)" in response.text


def test_batch_reads_ids_in_every_spelling(shared_ids, worker):
    body = {"ids": [f"#{shared_ids['t1']}", str(shared_ids["b1"]), "x"], "orderBy": "whatever", "limit": 0, "more": 1}
    with httpx2.Client(base_url=worker) as http:
        assert [one["id"] for one in http.post("/api/observations/batch", json=body).json()] == [shared_ids["t1"]]
        tool_uses = http.post("/api/tool-uses/batch", json={"ids": [1]})
        assert "keeps no raw tool calls" in text_of(tool_uses)


def test_corpus_is_a_saved_view_that_answers_questions_with_memories(shared_ids, worker):
    owner_ensure()
    with httpx2.Client(base_url=worker) as http:
        built = http.post("/api/corpus", json={"name": "Yard", "project": "boat", "types": "bugfix,decision"}).json()
        assert (built["name"], built["stats"]["observation_count"]) == ("yard", 2)
        assert built["stats"]["type_breakdown"] == {"bugfix": 1, "decision": 1}
        assert built["stats"]["date_range"]["earliest"] == "2024-02-01T07:00:00+00:00"
        view = SavedView.objects.get()
        assert (view.slug, view.visibility) == ("corpus-yard", "private")
        assert view.query == "project=boat&type=bugfix&type=decision"
        assert AuditEvent.objects.get(verb="saved_view_create").door == "mcp"
        again = http.post("/api/corpus", json={"name": "yard", "project": "boat", "query": "crane"}).json()
        assert again["filter"] == {"q": "crane", "project": ["boat"]}
        assert '"name": "yard"' in text_of(http.get("/api/corpus"))
        assert http.post("/api/corpus/yard/prime", json={}).json()["note"].startswith("Nothing has to be loaded")
        assert http.post("/api/corpus/yard/rebuild", json={}).json()["stats"] == again["stats"]
        answer = http.post("/api/corpus/yard/query", json={"question": "the crane brake, and the teak deck"}).json()
        assert answer["ids"] == [shared_ids["b1"]]
        assert "Crane brake slips" in answer["answer"]
        assert "There are: yard." in http.post("/api/corpus/wood/query", json={"question": "x"}).json()["error"]
    assert SavedView.objects.count() == 1


def test_port_for_some_projects_answers_about_no_other(shared_ids, worker, monkeypatch):
    owner_ensure()
    owner = User.objects.get()
    SavedView.objects.create(owner=owner, name="Of boats", slug="of-boats", query="project=boat")
    monkeypatch.setattr("agent_tools.claude_mem.worker.projects", ("tea",))
    with httpx2.Client(base_url=worker) as http:
        assert "| boat |" not in text_of(http.get("/api/search?query=boat&limit=100"))
        assert text_of(http.get("/api/search?limit=100")).count("| tea |") == 8
        for_ids = {"ids": [shared_ids["b1"], shared_ids["t1"]]}
        assert [one["project"] for one in http.post("/api/observations/batch", json=for_ids).json()] == ["tea"]
        assert http.get(f"/api/timeline?anchor={shared_ids['b1']}").status_code == 404
        assert "rane brake" not in http.get("/api/context/inject?projects=boat").text
        assert "of-boats" not in text_of(http.get("/api/corpus"))
        assert http.post("/api/corpus/of-boats/prime").json() == {
            "error": "Corpus 'of-boats' not found. There are: none yet."
        }
        monkeypatch.setattr("agent_tools.claude_mem.worker.projects", ())
        assert "of-boats" in text_of(http.get("/api/corpus"))
