"""The ASGI entry point."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_asgi_application()

from config.serving import steady_memory  # noqa: E402 - it reads the settings
from memories.embeddings import load_in_background  # noqa: E402

steady_memory()
# What a model brings along stays as well.
load_in_background(then=steady_memory)
