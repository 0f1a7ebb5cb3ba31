"""The workflow that every agent is given when it connects, before any tool is loaded, and the names of the profiles."""

from typing import Literal

# The catalogue has the tools of each.
PROFILE_NAMES = ("core", "all", "chatgpt")
DEFAULT_PROFILE: Literal["all"] = "all"

WORKFLOW = """\
3-LAYER WORKFLOW (always follow; it costs a tenth of fetching everything):
1. search(query) -> an index with ids, 25-50 tokens a hit
2. timeline(anchor=ID) -> what was remembered around a hit
3. get_observations(ids=[...]) -> whole memories, ONLY those you chose
Never fetch whole memories before you have chosen by the index.
Filters narrow every step: project, type, tag, category, from, to, since=30d. include_facets=true shows what there is \
to filter by, with counts over all matches.
Before store_memory, search: what is there already is better changed with update_memory. Connect what belongs together \
with relate."""
