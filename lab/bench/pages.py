"""The pages as a browser shows them: the first paint, what is loaded for it, and the time from a click to the new
results on the screen.
"""

import random
from typing import Any

from django.conf import settings

from access.keys import make_key
from access.sign_in import owner_to_sign_in, sign_in_link
from access.viewer import command_viewer
from lab.bench.load import is_ready, load_corpus
from lab.bench.runner import Benchmark, Job
from lab.report import Cell, Row, cells, machine_load, percentiles, table
from lab.sandbox import BenchmarkError
from memories.embedding.models import missing_packages

_TIMES = 30
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PAGES = {"home": "/", "explore": "/explore/", "categories": "/categories/"}

# The page as it is once nothing more is loaded or shifted. Sizes are those on the wire.
_LOADED = """async () => {
  await new Promise((resolve) => setTimeout(resolve, 100));
  const shifts = await new Promise((resolve) => {
    new PerformanceObserver((list) => resolve(list.getEntries())).observe({type: "layout-shift", buffered: true});
    setTimeout(() => resolve([]), 50);
  });
  const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return {
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    shift: shifts.reduce((sum, one) => sum + one.value, 0),
    bytes: loaded.reduce((sum, one) => sum + one.transferSize, 0),
    nodes: document.querySelectorAll("*").length,
  };
}"""
# The milliseconds from a click on a value of a facet to the frame after the new results.
_CLICK = """async (at) => {
  const boxes = [...document.querySelectorAll("ul.values input[type=checkbox]:not(:disabled)")];
  const visible = boxes.filter((box) => box.offsetParent);
  const settled = new Promise((resolve) => document.addEventListener("htmx:afterSettle", resolve, {once: true}));
  const begin = performance.now();
  visible[Math.floor(at * visible.length)].click();
  await settled;
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return performance.now() - begin;
}"""


def run(job: Job, size: int) -> Row:
    try:
        from playwright.sync_api import sync_playwright

        from tests.browser.chromium import browser_path
    except ImportError as error:
        raise BenchmarkError(f"This needs the packages of development (make test installs them): {error}.") from error
    path = browser_path()
    if path is None:
        raise BenchmarkError("There is no browser: set CHROMIUM to the path of a Chromium or Chrome.")
    load_corpus(job, size)
    key = make_key(name="pages", scopes=("read",), viewer=command_viewer(), every_project=True).raw
    with job.sandbox.serve(lambda port: is_ready(port, key), {}) as (port, _):
        url = f"http://127.0.0.1:{port}"
        # The server makes one at its first start.
        user = owner_to_sign_in()
        if user is None:
            raise BenchmarkError("The database has nobody who can sign in.")
        link, load_before = sign_in_link(user=user, site=url), machine_load()
        # Playwright runs an event loop in this thread, which Django's database calls refuse.
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
            first = browser.new_context()
            first.new_page().goto(link)
            state: Any = first.storage_state()
            pages = {name: _first_views(job, browser, state, url + address) for name, address in _PAGES.items()}
            clicks = _clicks(job, browser.new_context(storage_state=state).new_page(), url)
            browser.close()
    has_meaning = not missing_packages(settings.EMBEDDING_MODEL)
    return {"load_before": load_before, "has_meaning": has_meaning, "pages": pages, "clicks": percentiles(clicks)}


def _first_views(job: Job, browser: Any, state: Any, address: str) -> Row:
    """Load a page again and again as a browser does that has nothing of it."""
    found: list[dict[str, float]] = []
    for _ in job.progress.track(f"loading {address}", range(_TIMES), _TIMES):
        context = browser.new_context(storage_state=state)
        page = context.new_page()
        # The browser draws its own window meanwhile, which would take the processor from the page.
        page.wait_for_timeout(1_000)
        page.goto(address, wait_until="networkidle")
        found.append(page.evaluate(_LOADED))
        context.close()
    return {
        "paint": percentiles([one["paint"] / 1_000 for one in found]),
        "layout_shift": max(one["shift"] for one in found),
        "kilobytes": round(max(one["bytes"] for one in found) / 1_000, 1),
        "nodes": max(one["nodes"] for one in found),
    }


def _clicks(job: Job, page: Any, url: str) -> list[float]:
    """Seconds from clicks on values of facets, each on a page that has just been opened."""
    rng = random.Random(job.options.seed)
    spent = []
    for _ in job.progress.track("clicking", range(_TIMES), _TIMES):
        page.goto(f"{url}/explore/", wait_until="networkidle")
        spent.append(page.evaluate(_CLICK, rng.random()) / 1_000)
    return spent


def lines(name: str, found: Row) -> list[str]:
    rows: list[list[Cell]] = [
        [page, *cells(of["paint"], ("p50", "p95")), of["layout_shift"], of["kilobytes"], of["nodes"]]
        for page, of in found["pages"].items()
    ]
    meaning = "" if found["has_meaning"] else ", without a model"
    return [
        f"### Pages of {int(name):,} memories in a browser{meaning}",
        "",
        f"{_TIMES} times each, in milliseconds; every first view with an empty cache.",
        "",
        *table(["first view", "paint p50", "paint p95", "layout shift", "kB", "elements"], rows),
        "",
        *table(["click on a filter to painted results", "p50", "p95"], [["", *cells(found["clicks"], ("p50", "p95"))]]),
    ]


BENCHMARK = Benchmark(
    "pages",
    run,
    lines,
    "MEMORIES",
    "the pages of a corpus of this size in a browser",
    limits=(1_000, 10_000_000),
)
