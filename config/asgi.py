"""The ASGI entry point: the site, and `/mcp` for agents."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
site = get_asgi_application()

from agent_tools.asgi import McpApplication  # noqa: E402 - they read the settings
from memories.embedding.query import load_in_background  # noqa: E402
from search.cross_encoder import load_in_background as load_cross_encoder  # noqa: E402
from search.warmup import warm_in_background  # noqa: E402
from web.serving import steady_memory  # noqa: E402

application = McpApplication(site)
steady_memory()
# Objects loaded with the model are permanent too.
load_in_background(then=steady_memory)
load_cross_encoder()
warm_in_background()
