"""Whole journeys by keyboard alone and without scripts; paper; reduced motion; and what every page keeps to."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.management import call_command
from playwright.sync_api import expect

from memories.models import Memory
from tests.browser.test_explore import address, staying, total

MOST_NODES = 1_500


def tab_to(page, control, most=80):
    """Press Tab until a control has the focus, as somebody without a mouse does."""
    for _ in range(most):
        if control.count() and control.evaluate("(control) => control === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{control} is more than {most} tabs away")


def press_until(page, key, is_there, most=20):
    for _ in range(most):
        if is_there():
            return
        page.keyboard.press(key)
    pytest.fail(f"not there after {key} was pressed {most} times")


def tagged(tag):
    return Memory.objects.filter(tags__contains=[tag]).count()


def test_keyboard_alone_searches_filters_reads_retags_undoes_and_curates(open_page):
    page = open_page("/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("kettle")
    page.keyboard.press("Enter")
    expect(total(page)).to_contain_text("memories of 14")
    found = total(page).inner_text()

    # Filter: from the address of the page into the first facet that has a value to tick.
    page.reload()
    with staying(page):
        tab_to(page, page.get_by_role("checkbox", name=re.compile(r"^bugfix, \d")))
        page.keyboard.press("Space")
        expect(total(page)).not_to_have_text(found)
        expect(page.get_by_role("checkbox", name=re.compile(r"^bugfix, \d"))).to_be_focused()
    assert address(page) == "/explore/?q=kettle&type=bugfix"

    # Read beside the list, and come back to it.
    with staying(page):
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("#panel-title")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#panel")).to_be_empty()
        expect(page.locator("#hits h2 a").first).to_be_focused()

    # Choose it, tag it, and take that back.
    page.keyboard.press("x")
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Tag…")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("combobox", name="Add tags")).to_be_focused()
    page.keyboard.type("spring,")
    expect(page.locator(".name.new")).to_have_text("spring×")
    expect(page.locator(".names-hint:visible")).to_have_text("Enter or a comma adds a name, Enter again is “Preview”.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    tab_to(page, page.get_by_role("button", name="Retag 1 memory"), most=2)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/explore/\?q=kettle&type=bugfix$"))
    assert tagged("spring") == 1
    expect(page.locator(".messages .notice")).to_be_focused()
    tab_to(page, page.get_by_role("button", name="Undo"), most=2)
    page.keyboard.press("Enter")
    expect(page.locator(".messages .notice")).to_be_focused()
    expect(page.locator(".messages")).to_contain_text("Undone")
    assert tagged("spring") == 0
    # It is still chosen.
    expect(page.locator("#hits .tick").first).to_be_checked()
    assert address(page) == "/explore/?q=kettle&type=bugfix"

    # Curate: from a tag of the memory to its page, merge it into another, and undo that.
    rows = page.locator("#hits .hit")
    row = rows.filter(has=page.locator(".tags a", has_text=re.compile("^kettle$"))).first
    press_until(page, "j", lambda: row.evaluate("(row) => row.contains(document.activeElement)"))
    curate = page.get_by_role("link", name="Curate the tag kettle")
    press_until(page, "ArrowRight", curate.count)
    page.keyboard.press("ArrowRight")
    expect(curate).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("kettle")
    expect(page.locator("h1")).to_be_focused()
    tab_to(page, page.get_by_role("combobox", name="Into"))
    page.keyboard.type("hardwar")
    expect(page.get_by_role("option", name=re.compile("^hardware"))).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name=re.compile("^Preview merge")))
    page.keyboard.press("Enter")
    merge = page.get_by_role("button", name="Merge", exact=True)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    tab_to(page, merge, most=2)
    before = tagged("kettle")
    page.keyboard.press("Enter")
    undo = page.get_by_role("button", name="Undo").first
    expect(undo).to_be_visible()
    assert (before, tagged("kettle")) == (2, 0)
    tab_to(page, undo, most=2)
    page.keyboard.press("Enter")
    expect(page.locator(".messages")).to_contain_text("Undone")
    assert tagged("kettle") == 2


def test_without_scripts_all_of_it_works_too(open_page):
    page = open_page("/", java_script_enabled=False)
    page.get_by_role("searchbox", name="Search memories").fill("kettle")
    page.keyboard.press("Enter")
    found = total(page).inner_text()
    page.get_by_role("checkbox", name=re.compile(r"^bugfix, \d")).check()
    page.locator("aside").get_by_role("button", name="Apply").click()
    assert address(page) == "/explore/?q=kettle&type=bugfix"
    assert total(page).inner_text() != found
    page.locator("#hits h2 a").first.click()
    expect(page.locator(".memory h1")).to_be_visible()
    page.get_by_role("link", name="Back to results").click()
    page.locator("#hits .tick").first.check()
    page.get_by_role("button", name="Tag…").click()
    page.locator("textarea[name=add_tags]").fill("spring")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Retag 1 memory").click()
    assert (address(page), tagged("spring")) == ("/explore/?q=kettle&type=bugfix", 1)
    page.get_by_role("button", name="Undo").click()
    assert tagged("spring") == 0
    page.goto(page.url.partition("/explore/")[0] + "/facets/tag/")
    page.get_by_role("link", name="Curate kettle").click()
    page.get_by_role("textbox", name="Into").or_(page.get_by_role("combobox", name="Into")).fill("hardware")
    page.get_by_role("button", name=re.compile("^Preview merge")).click()
    page.get_by_role("button", name="Merge", exact=True).click()
    assert tagged("kettle") == 0
    page.get_by_role("button", name="Undo").first.click()
    assert tagged("kettle") == 2


@pytest.fixture
def many(site, tmp_path):
    """Much of everything: 400 memories with 500 tags, 300 categories on three levels, 200 concepts and entities."""
    kinds = ("person", "tool", "library", "place")
    records = [
        {
            "id": f"many-{n}",
            "project": f"project-{n % 30}",
            "type": f"type-{n % 25}",
            "title": f"Memory {n} of many",
            "content": "\n\n".join(f"Paragraph {k} about [a page](https://example.org/{n}/{k})." for k in range(12)),
            "created_at": f"20{10 + n % 16}-{1 + n % 12:02}-{1 + n % 28:02}T10:00:00Z",
            "authors": [f"Author {n % 40}"],
            "agent": f"agent-{n % 12}",
            "tags": [f"tag-{(n * k) % 500}" for k in range(1, 21)],
            "categories": [f"root-{n % 20}/branch-{n % 100}/leaf-{n % 300}"],
            "concepts": [f"concept {(n * k) % 200}" for k in range(1, 9)],
            "entities": [{"name": f"Entity {(n * k) % 200}", "type": kinds[(n * k) % 200 % 4]} for k in range(1, 9)],
        }
        for n in range(400)
    ]
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    call_command("import_memories", str(path), verbosity=0)
    return site


def test_no_page_has_more_nodes_than_a_browser_lays_out_at_once(many, open_page):
    """Also with much of everything. Pages of which the reader chooses the size stay out."""
    page = open_page("/")

    def linked(path, pattern):
        return re.search(rf'href="({pattern})"', page.context.request.get(many.url + path).text())[1]

    memory = f"/m/{Memory.objects.get(external_id='many-7').pk}/"
    entity = linked("/graph/", r'/graph/entity/[^"?]+')
    paths = ["/", "/explore/", "/explore/?split=type", "/explore/?view=table", memory]
    paths += ["/categories/", linked("/categories/", r'/categories/[^"?]+'), "/facets/tag/", "/explore/matrix/"]
    paths += ["/graph/", "/graph/concepts/", entity, "/curate/", linked(entity, r'/curate/entity/[^"?]+')]
    paths += ["/review/", "/status/", "/imports/"]
    too_large = []
    for path in paths:
        answer = page.goto(many.url + path)
        assert answer.ok, path
        nodes = page.evaluate("document.querySelectorAll('*').length")
        if nodes > MOST_NODES:
            too_large.append((path, nodes))
    assert too_large == []


def test_page_that_arrives_in_parts_is_painted_once_it_is_whole(open_page):
    """Nothing is then moved by what comes after it."""
    page = open_page("/explore/")
    begin, middle, rest = page.content().partition('<button class="person"')
    pause = 0.5

    class InParts(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/" else 404)
            self.end_headers()
            for part in (begin, middle + rest) if self.path == "/" else ():
                self.wfile.write(part.encode())
                self.wfile.flush()
                time.sleep(pause)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), InParts) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        bare = page.context.browser.new_page()
        bare.goto(f"http://127.0.0.1:{server.server_port}/")
        painted = bare.evaluate("""() => new Promise((resolve) => new PerformanceObserver((list) =>
          resolve(list.getEntriesByName("first-contentful-paint")[0]?.startTime))
          .observe({ type: "paint", buffered: true }))""")
        bare.close()
        server.shutdown()
    assert painted > 1_000 * pause
