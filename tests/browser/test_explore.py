"""The explore page in a real browser: with scripts, without them, on a narrow screen, by keyboard alone."""

import re
from contextlib import contextmanager

import pytest
from django.conf import settings
from playwright.sync_api import expect

from memories.models import Memory, Project
from search.facets import FACETS

SETTLED = "() => !document.documentElement.classList.contains('busy')"


def address(page):
    return re.sub(r"^https?://[^/]+", "", page.url)


def total(page):
    return page.locator("#total")


@contextmanager
def staying(page):
    """Actions within the page leave the document in place: nothing is loaded again."""
    page.evaluate("window.stayed = true")
    yield
    page.wait_for_function(SETTLED)
    assert page.evaluate("window.stayed") is True


def test_filter_by_click_without_a_reload(open_page):
    page = open_page("/explore/")
    expect(total(page)).to_have_text("14 memories")
    with staying(page):
        page.get_by_role("checkbox", name=re.compile(r"^note, \d")).check()
        expect(total(page)).to_have_text("6 memories of 14")
    assert address(page) == "/explore/?type=note"
    expect(page).to_have_title("6 memories · type note · Mnemoscope")
    expect(page.locator("#status")).to_have_text("6 memories")
    expect(page.get_by_role("checkbox", name=re.compile(r"^note, \d"))).to_be_focused()
    expect(page.get_by_role("checkbox", name=re.compile(r"^note, \d"))).to_be_checked()


def test_back_steps_through_decisions_and_brings_whole_pages(open_page):
    page = open_page("/explore/")
    for name in (r"^note, \d", r"^decision, \d"):
        page.get_by_role("checkbox", name=re.compile(name)).check()
        page.wait_for_function(SETTLED)
    expect(page).to_have_url(re.compile(r"\?type=decision&type=note$"))
    page.evaluate("location.href = document.querySelector('.hit h2 a').href")
    expect(page.locator(".memory h1")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"\?type=decision&type=note$"))
    expect(page.locator("header.top")).to_have_count(1)
    page.go_back()
    expect(page).to_have_url(re.compile(r"\?type=note$"))
    expect(total(page)).to_have_text("6 memories of 14")
    expect(page.locator("header.top")).to_have_count(1)
    expect(page.get_by_role("checkbox", name=re.compile(r"^decision, \d"))).not_to_be_checked()
    page.go_forward()
    expect(page.get_by_role("checkbox", name=re.compile(r"^decision, \d"))).to_be_checked()
    # The scripts work on the page that Back brought, too.
    page.get_by_role("link", name="Remove filter: type note").click()
    expect(page).to_have_url(re.compile(r"\?type=decision$"))


def test_searching_keeps_the_focus_and_leaves_one_entry(open_page):
    page = open_page("/explore/?project=tea")
    before = page.evaluate("history.length")
    with staying(page):
        page.locator("#q").press_sequentially("oolong", delay=30)
        expect(total(page)).to_have_text("1 memory of 14")
        expect(page.locator("#q")).to_be_focused()
        page.locator("#q").press_sequentially(" tea", delay=30)
        expect(page).to_have_url(re.compile(r"\?q=oolong\+tea&project=tea$"))
    assert page.evaluate("history.length") == before + 1
    expect(page.locator("#q")).to_have_value("oolong tea")
    expect(page.locator(".hit mark").first).to_have_text(re.compile("oolong", re.IGNORECASE))


def test_part_that_arrives_late_does_not_bring_back_the_slice_before(open_page):
    page = open_page("/explore/")
    page.route(
        "**/explore/**", lambda route: route.request.headers.get("hx-target") == "facet-author" or route.continue_()
    )
    page.locator("#facet-author > summary").click()
    page.get_by_role("checkbox", name=re.compile(r"^note, \d")).check()
    page.wait_for_url("**/explore/?type=note")
    expect(page.locator("#facet-author input").first).to_be_visible()
    assert address(page) == "/explore/?type=note"
    # The request for the panel was given up, which htmx reports as an error.
    open_page.complaints.clear()


def test_only_and_exclude_follow_the_focus(open_page):
    page = open_page("/explore/?project=tea&type=note")
    page.get_by_role("checkbox", name=re.compile(r"^decision, \d")).focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Only decision")).to_be_focused()
    assert page.locator("#filters .acts").count() == 1
    with staying(page):
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"\?project=tea&type=decision$"))
        expect(page.get_by_role("checkbox", name=re.compile(r"^decision, \d"))).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"\?project=tea&-type=decision$"))
    expect(page.get_by_role("checkbox", name=re.compile(r"^Excluded: decision"))).to_be_focused()
    page = open_page("/explore/")
    page.locator("#no-entity").hover()
    page.get_by_role("link", name="Only with a value: entity").click()
    expect(page).to_have_url(re.compile(r"has=entity"))


def test_focus_stays_on_the_link_that_was_followed_or_goes_to_the_total(open_page):
    page = open_page("/explore/?q=tea")
    for name, id_ in (("last year", "range-1y"), ("last 7 days", "range-7d")):
        page.get_by_role("link", name=re.compile(name)).press("Enter")
        page.wait_for_url(f"**since={id_[6:]}")
        page.wait_for_function(SETTLED)
        # Focus is set once more when a swap has settled, 20 ms after its request has ended.
        page.wait_for_timeout(100)
        expect(page.locator(f"#{id_}")).to_be_focused()
    page.get_by_role("link", name="Reset").press("Enter")
    expect(page).to_have_url(re.compile(r"\?q=tea$"))
    expect(total(page)).to_be_focused()
    tag = page.locator(".hit .tags a").first
    tag.press("Enter")
    expect(page).to_have_url(re.compile(r"tag="))
    expect(page.locator(f"#{tag.get_attribute('id')}")).to_be_focused()


@pytest.mark.parametrize(
    "facet",
    [pytest.param(spec.key, marks=() if spec.key in {"tag", "category"} else pytest.mark.release) for spec in FACETS],
)
def test_ticked_row_does_not_move(open_page, facet):
    page = open_page("/explore/?q=tea", viewport={"width": 1280, "height": 500})
    panel = page.locator(f"#facet-{facet}")
    if panel.get_attribute("open") is None:
        panel.locator("> summary").click()
    box = panel.locator("input[type=checkbox]").first
    box.scroll_into_view_if_needed()
    place = "(box) => box.getBoundingClientRect().top"
    before = box.evaluate(place)
    box_id = box.get_attribute("id")
    for _ in range(2):
        page.locator(f"#{box_id}").click()
        page.wait_for_function(SETTLED)
        page.wait_for_timeout(50)
        assert page.locator(f"#{box_id}").evaluate(place) == pytest.approx(before, abs=1)


def test_page_is_small_and_fetches_parts_when_they_are_opened(open_page):
    page = open_page("/explore/?q=kettle")
    assert page.locator("#facet-author input").count() == 0
    with staying(page):
        page.locator("#facet-author > summary").click()
        expect(page.locator("#facet-author input").first).to_be_visible()
        page.locator("#dates > summary").click()
        page.locator("#histogram-table > summary").click()
        expect(page.locator("#histogram-table tbody tr").first).to_be_visible()
        page.get_by_label("Sort").select_option(label="Title A–Z")
        page.wait_for_url("**sort=title")
        page.wait_for_function(SETTLED)
        expect(page.locator("#facet-author input").first).to_be_visible()
        expect(page.locator("#histogram-table tbody tr").first).to_be_visible()
    # Per row: the item, its label, box and count; per bar one element.
    assert page.locator("#facet-type .value").first.locator("*").count() == 3
    assert page.locator("[data-bar] *").count() == 0


# --- the histogram --------------------------------------------------------------------------------------------------


def test_bar_gives_the_number_on_it(open_page):
    page = open_page("/explore/")
    bar = page.locator("a[data-bar]").first
    count = bar.get_attribute("data-count")
    with staying(page):
        bar.click()
        expect(page).to_have_url(re.compile(r"\?from=[\d-]+&to=[\d-]+$"))
    expect(total(page)).to_have_text(re.compile(rf"^\s*{count}\s+memor"))
    page.get_by_role("link", name="Reset").click()
    expect(page).to_have_url(re.compile(r"/explore/$"))


def test_drag_snaps_to_bars_and_escape_cancels_it(open_page):
    page = open_page("/explore/")
    box = page.locator("#plot").bounding_box()
    middle = box["y"] + box["height"] / 2

    def drag():
        page.mouse.move(box["x"] + 2, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)

    drag()
    expect(page.locator("[data-bubble]")).to_contain_text("–")
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator("[data-bubble]")).to_be_hidden()
    assert address(page) == "/explore/"
    drag()
    page.mouse.up()
    first = page.locator("[data-bar]").first.get_attribute("data-first")
    expect(page).to_have_url(re.compile(rf"\?from={first}&to=[\d-]+$"))
    assert page.locator("#date-from").input_value() == first


def test_brush_by_keyboard(open_page):
    page = open_page("/explore/")
    bars = page.locator("[data-bar]")
    second, last_but_one = bars.nth(1), bars.nth(bars.count() - 2)
    wanted = f"?from={second.get_attribute('data-first')}&to={last_but_one.get_attribute('data-last')}"
    page.locator("#handle-from").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#handle-from")).to_have_attribute("aria-valuetext", second.get_attribute("data-label"))
    page.keyboard.press("Escape")
    expect(page.locator("#handle-from")).to_have_attribute("aria-valuenow", "0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape(wanted) + "$"))
    expect(page.locator("#handle-to")).to_be_focused()


# --- errors ---------------------------------------------------------------------------------------------------------


def test_error_leaves_the_results_and_offers_a_retry(open_page):
    page = open_page("/explore/")
    page.route("**/explore/?*", lambda route: route.fulfill(status=500, body="no"))
    page.get_by_role("checkbox", name=re.compile(r"^note, \d")).check()
    expect(page.locator("#toast")).to_contain_text("The server could not answer (500)")
    expect(total(page)).to_have_text("14 memories")
    page.unroute("**/explore/?*")
    page.get_by_role("button", name="Retry").click()
    expect(total(page)).to_have_text("6 memories of 14")
    expect(page.locator("#toast")).to_be_hidden()
    open_page.complaints.clear()


def test_expired_sign_in_leads_to_the_sign_in_page(open_page):
    page = open_page("/explore/")
    page.context.clear_cookies(name=settings.SESSION_COOKIE_NAME)
    # A click, not a check: that would look for the tick on a page that is gone.
    page.get_by_role("checkbox", name=re.compile(r"^note, \d")).click()
    expect(page).to_have_url(re.compile(r"/sign-in/\?next="))


# --- keyboard -------------------------------------------------------------------------------------------------------


def test_shortcuts(open_page):
    page = open_page("/explore/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".hit h2 a").nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator(".hit h2 a").nth(0)).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("j?")
    expect(page.locator("#q")).to_have_value("j?")
    page.locator("#total").focus()
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.locator("#shortcuts-on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_hidden()


# --- narrow screens -------------------------------------------------------------------------------------------------

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def test_filters_are_a_dialog_on_a_narrow_screen(open_page):
    page = open_page("/explore/?tag=tea", **PHONE)
    expect(page.locator("#filters")).to_be_hidden()
    page.get_by_role("button", name="Filters (1)").tap()
    dialog = page.get_by_role("dialog", name="Filters")
    expect(dialog).to_be_visible()
    dialog.get_by_role("checkbox", name=re.compile(r"^note, \d")).tap()
    done = dialog.get_by_role("button", name="Show 1 memory")
    expect(done).to_be_visible()
    done.tap()
    expect(page.locator("#filters")).to_be_hidden()
    expect(total(page)).to_have_text("1 memory of 14")
    expect(page.get_by_role("button", name="Filters (2)")).to_be_focused()


def test_nothing_runs_over_the_edge(open_page, site):
    page = open_page("/explore/")
    first = page.locator(".hit h2 a").first.get_attribute("href")
    for path in (
        "/explore/",
        "/explore/?q=zebra&tag=tea",
        "/explore/?tagg=x",
        "/facets/tag/",
        "/facets/category/",
        first,
    ):
        page.goto(site.url + path)
        for width in (320, 390, 768, 1024):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            cut = """(ticks) => ticks.filter((t) => t.getBoundingClientRect().right
                > t.parentElement.getBoundingClientRect().right + 0.5).length"""
            assert page.locator(".ticks text:visible").evaluate_all(cut) == 0


@pytest.mark.parametrize("options", [pytest.param({}, id="wide"), pytest.param(PHONE, id="narrow")])
def test_targets_are_large_enough(open_page, options):
    page = open_page("/explore/?tag=tea&-type=note", **options)
    if options:
        page.get_by_role("button", name="Filters (2)").tap()
    small = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, select, summary, label:has(input)")]
            .filter((e) => e.checkVisibility({visibilityProperty: true}) && !e.closest("svg, .hidden-text, .skip"))
            .map((e) => [e.outerHTML.slice(0, 90), e.getBoundingClientRect().height,
                Math.max(e.getBoundingClientRect().width,
                    parseFloat(getComputedStyle(e, "::after").width) || 0)])
            .filter(([html, height, width]) => html.indexOf("data-chip") < 0 && (height < 23.5 || width < 15.5))"""
    )
    assert small == []


# --- without scripts ------------------------------------------------------------------------------------------------


def test_journey_without_scripts(open_page):
    page = open_page("/explore/", java_script_enabled=False)
    page.fill("#q", "tea")
    page.get_by_role("button", name="Search").click()
    assert address(page) == "/explore/?q=tea"
    before = total(page).inner_text()
    page.get_by_role("checkbox", name=re.compile(r"^note, \d")).check()
    page.locator("aside").get_by_role("button", name="Apply").click()
    assert address(page) == "/explore/?q=tea&type=note"
    assert total(page).inner_text() != before
    page.select_option("select[name=sort]", label="Oldest first")
    page.locator(".tools").get_by_role("button", name="Apply").click()
    assert address(page) == "/explore/?q=tea&type=note&sort=oldest"
    page.locator("#dates > summary").click()
    page.fill("#date-from", "2024-02-01")
    page.locator(".dates").get_by_role("button", name="Apply").click()
    assert address(page) == "/explore/?q=tea&type=note&from=2024-02-01&sort=oldest"
    page.get_by_role("link", name="Remove filter: type note").click()
    assert address(page) == "/explore/?q=tea&from=2024-02-01&sort=oldest"
    page.locator("a[data-bar]").first.click()
    assert "to=" in address(page)
    page.locator(".hit h2 a").first.click()
    expect(page.locator(".memory h1")).to_be_visible()
    page.get_by_role("link", name="Back to results").click()
    assert address(page).startswith("/explore/?q=tea&from=")
    for control in ("[data-open-filters]", "[data-theme-switch]", "[data-close-filters]", ".handle"):
        expect(page.locator(control).first).to_be_hidden()


def test_parts_that_scripts_fetch_are_links_without_them(open_page):
    page = open_page("/explore/?q=tea", java_script_enabled=False)
    page.locator("#facet-type").get_by_role("link", name="Exclude…").click()
    page.get_by_role("link", name="Exclude type note").click(force=True)
    assert address(page) == "/explore/?q=tea&-type=note"
    results = page.url
    page.locator("details.why summary").first.click()
    page.locator("details.why").first.get_by_role("link", name="Explain").click()
    expect(page.locator(".sentence")).to_be_visible()
    # Not by Back, which now and then leaves Chromium without an active page if no script runs.
    page.goto(results)
    page.locator("#facet-author > summary").click()
    page.locator("#facet-author").get_by_role("link", name="All").click()
    assert address(page) == "/facets/author/?q=tea&-type=note"
    page.goto(results)
    page.locator("#dates > summary").click()
    page.locator("#histogram-table > summary").click()
    expect(page.locator("#histogram-table tbody tr").first).to_be_visible()


# --- the other pages ------------------------------------------------------------------------------------------------


def test_memory_text_runs_nothing(open_page, site):
    project = Project.objects.get(slug="tea")
    content = '<script>window.ran = 1</script> <img src=x onerror="window.ran = 1"> [x](javascript:window.ran=1)'
    memory = Memory.objects.create(
        id=999_001, project=project, title="<img src=x onerror=window.ran=1>", content=content
    )
    page = open_page(f"/m/{memory.pk}/")
    expect(page.locator(".memory h1")).to_have_text("<img src=x onerror=window.ran=1>")
    assert page.evaluate("window.ran") is None
    assert page.locator("main img").count() == 0


def test_address_after_a_refused_parameter_is_that_of_the_results_shown(open_page):
    page = open_page("/explore/?tag=tea")
    with staying(page):
        page.evaluate("document.getElementById('bucket').options[0].value = 'fortnight'")
        page.get_by_role("checkbox", name=re.compile(r"^note, \d")).check()
        expect(page.locator(".notice.error")).to_contain_text("bucket")
        page.wait_for_url("**/explore/?type=note&tag=tea")
    shown = total(page).inner_text()
    page.reload()
    expect(total(page)).to_have_text(shown)
    open_page.complaints.clear()


def test_row_is_held_where_the_sidebar_cannot_scroll(open_page):
    page = open_page("/explore/", viewport={"width": 1280, "height": 1100})
    box = page.locator("#facet-tag input[type=checkbox]").first
    before = box.evaluate("(box) => box.getBoundingClientRect().top")
    # The panel above it will be much shorter in the answer.
    page.locator("#facet-project fieldset").evaluate("(e) => e.append(document.createElement('hr'))")
    page.locator("#facet-project hr").evaluate("(e) => { e.style.height = '150px'; }")
    moved = box.evaluate("(box) => box.getBoundingClientRect().top")
    assert moved > before + 100
    box.focus()
    page.keyboard.press("Space")
    expect(page.locator("#facet-project hr")).to_have_count(0)
    assert box.evaluate("(box) => box.getBoundingClientRect().top") == pytest.approx(moved, abs=1)
