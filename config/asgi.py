"""The ASGI entry point: the site, `/mcp` for agents, and `/healthz` and `/readyz` for supervisors."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402

from agent_tools.asgi import McpApplication, allowance_of, refusal_of, sender_of  # noqa: E402 - they read the settings
from memories.embedding import query  # noqa: E402
from memories.embedding.shared import RemoteQueries  # noqa: E402
from memories.recalls import store_in_background as store_recalls  # noqa: E402
from search.cross_encoder import load_in_background as load_cross_encoder  # noqa: E402
from search.warmup import warm_in_background  # noqa: E402
from web.bodies import BodyReader  # noqa: E402
from web.exchange import ExchangeApplication  # noqa: E402
from web.handler import MountedApplication, SiteHandler  # noqa: E402
from web.outages import HealthEndpoints  # noqa: E402
from web.serving import steady_memory  # noqa: E402

# Whatever is inside of the reader of bodies need not wait for a client that sends slowly.
doors = BodyReader(McpApplication(SiteHandler()), sender_of, allowance_of, refusal_of)
exchanges = ExchangeApplication(HealthEndpoints(doors))
if settings.METRICS_TOKEN:
    from config.metrics import measured

    exchanges = measured(exchanges)
application = MountedApplication(exchanges)
# The worker has the model.
query.use(RemoteQueries())
steady_memory()
load_cross_encoder()
warm_in_background()
store_recalls()
