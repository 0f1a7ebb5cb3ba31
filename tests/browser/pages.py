"""Every page of the site, for what is checked on, or drawn of, all of them."""

import html
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urljoin

from playwright.sync_api import BrowserContext


class SitePage(NamedTuple):
    """A page by its address, or by what leads to it from there: links, each a pattern of an `href`, and `then` the
    address that is made of the last part of theirs, as {0}, {1}.
    """

    name: str
    path: str
    links: tuple[str, ...] = ()
    then: str = ""
    status: int = 200
    is_public: bool = False
    awaits: str = ""
    """What a script adds, if the page is not complete without."""

    def address(self, fetch: Callable[[str], str]) -> str | None:
        """Where it is on a site, None if nothing there leads to it; `fetch` gives the HTML of a path."""
        way = _way((self.path,), self.links, fetch)
        if way is None:
            return None
        ends = [path.rstrip("/").rpartition("/")[2] for path in way[1:]]
        return self.then.format(*ends) if self.then else way[-1]


def _way(way: tuple[str, ...], links: tuple[str, ...], fetch: Callable[[str], str]) -> tuple[str, ...] | None:
    """The paths from the last of `way` on, over links that match one after the other."""
    if not links:
        return way
    found = re.findall(rf'(?:href|action)="({links[0]})(?:\?ctx=[^"]*)?"', fetch(way[-1]))
    fresh = [path for path in (urljoin(way[-1], html.unescape(link)) for link in found) if path not in way]
    ways = (_way((*way, path), links[1:], fetch) for path in fresh[:MOST_TRIED])
    return next((one for one in ways if one), None)


# Links of a page that are followed in search of another link.
MOST_TRIED = 5
ENTITY = r"/graph/entity/[^\"?/]+/"
CONCEPT = r"/graph/concept/[^\"?/]+/"
MEMORY = r"/m/\d+/"
PAGES = (
    SitePage("home", "/"),
    SitePage("explore", "/explore/"),
    SitePage("explore-compact", "/explore/?view=compact"),
    SitePage("explore-table", "/explore/?view=table"),
    SitePage("explore-split", "/explore/?split=type"),
    SitePage("explore-panel", "/explore/", (MEMORY,), then="/explore/?sel={0}"),
    SitePage("explore-nothing", "/explore/?q=zxqvw&type=none"),
    SitePage("facet", "/facets/tag/"),
    SitePage("facets-arranged", "/explore/facets/"),
    SitePage("matrix", "/explore/matrix/"),
    SitePage("names", "/explore/names/"),
    SitePage("map", "/explore/?view=map"),
    SitePage("compare", "/compare/"),
    SitePage("compare-slices", "/compare/?a=type%3Dnote&b=type%3Ddecision"),
    SitePage("sessions", "/sessions/"),
    SitePage("session", "/sessions/", (r"/sessions/\d+/",)),
    SitePage("views", "/views/"),
    SitePage("view-new", "/views/new/"),
    SitePage("view-edit", "/views/", (r"/views/\d+/edit/",)),
    SitePage("view-feed", "/views/", (r"/views/\d+/feed/",)),
    SitePage("categories", "/categories/"),
    SitePage("category", "/categories/", (r"/categories/[^\"?]+",)),
    SitePage("new-category", "/curate/new-category/"),
    SitePage("category-lost", "/categories/no-such-category/", status=404),
    SitePage("graph", "/graph/"),
    SitePage("concepts", "/graph/concepts/"),
    SitePage("entity", "/graph/", (ENTITY,)),
    SitePage("concept", "/graph/concepts/", (CONCEPT,)),
    SitePage("relationship", "/graph/", (ENTITY, r"/graph/relationship/\d+/")),
    SitePage("path", "/graph/", (ENTITY, ENTITY), then="/graph/entity/{0}/?to={1}&together=1"),
    SitePage("memory", "/explore/", (MEMORY,)),
    SitePage("edit", "/explore/", (MEMORY, r"/m/\d+/edit/")),
    SitePage("similar", "/explore/", (MEMORY, r"/m/\d+/similar/")),
    SitePage("new", "/m/new/"),
    SitePage("why-not", "/explore/", (MEMORY,), then="/explore/why-not/?id={0}"),
    SitePage("curate", "/curate/"),
    SitePage("term", "/graph/", (ENTITY, r"/curate/entity/[^\"?]+")),
    SitePage("merge", "/graph/", (ENTITY, ENTITY), then="/curate/merge/entity/?term={0}&term={1}"),
    SitePage("retag", "/curate/retag/?q="),
    SitePage("preview", "/explore/", (MEMORY,), then="/curate/retag/?take=chosen&memory={0}&add_tags=looked-at"),
    SitePage("review", "/review/"),
    SitePage("proposals", "/review/proposals/"),
    SitePage("accept-many", "/review/accept-many/?kind=tag_duplicate"),
    SitePage("imports", "/imports/"),
    SitePage("import", "/imports/", (r"/imports/\d+/",)),
    SitePage("imports-found", "/imports/found/"),
    SitePage("followed", "/imports/", (r"/imports/followed/\d+/",)),
    SitePage("status", "/status/"),
    SitePage("account", "/settings/account/"),
    SitePage("keys", "/settings/keys/"),
    SitePage("agents", "/settings/agents/"),
    SitePage("import from a product", "/imports/from/claude-code/"),
    SitePage("people", "/people/"),
    SitePage("serve", "/settings/serve/"),
    SitePage("api", "/api/docs", awaits=".opblock-tag"),
    SitePage("admin", "/admin/"),
    SitePage("admin-list", "/admin/memories/memory/"),
    SitePage("admin-form", "/admin/memories/memory/", (r"/admin/memories/memory/\d+/change/",)),
    SitePage("lost", "/no-such-page/", status=404),
    SitePage("sign-in", "/sign-in/", is_public=True),
)


def addresses(context: BrowserContext, site: str) -> dict[SitePage, str | None]:
    """The address of each page on a site, as somebody who is signed in finds it."""
    read: dict[str, str] = {}

    def fetch(path: str) -> str:
        if path not in read:
            read[path] = context.request.get(site + path).text()
        return read[path]

    return {page: page.address(fetch) for page in PAGES}
