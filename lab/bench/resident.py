"""`python -m lab.bench.resident`: the memory that a process holds once it has answered the queries on stdin.

A process of its own, as a worker of a server is: nothing of the benchmark's memory counts. A line is a query string.
"""

import json
import os
import sys
from urllib.parse import parse_qsl

import django
import psutil


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()

    # These imports need the settings.
    from django.conf import settings

    from access.viewer import command_viewer
    from search.query import SearchQuery
    from search.run import run
    from web.serving import steady_memory

    viewer = command_viewer()
    steady_memory()
    for line in sys.stdin:
        query = SearchQuery.from_pairs(parse_qsl(line.strip()))
        result = run(query.model_copy(update={"include_facets": True}), viewer)
        if result.engine != settings.SEARCH_ENGINE:
            raise RuntimeError(f"The {result.engine} engine answered instead of {settings.SEARCH_ENGINE}.")
    memory = psutil.Process().memory_full_info()
    # Mapped and shared memory counts in the first number only.
    print(json.dumps({"resident_mb": memory.rss / 1e6, "resident_private_mb": memory.uss / 1e6}))


if __name__ == "__main__":
    main()
