"""`manage.py draw_map`: draws the map of meaning again."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memories.meaning_map import NOT_INSTALLED, MapKeeper, can_draw, current_layout
from text.formatting import memories


class Command(BaseCommand):
    help = "Draw the map of meaning again, from all vectors. Areas of the map before, in links, then match nothing."

    def handle(self, **options: Any) -> None:
        if not can_draw():
            raise CommandError(NOT_INSTALLED)
        before = current_layout()
        MapKeeper().once(redraw=True)
        layout = current_layout()
        if layout is None or layout == before:
            raise CommandError("There are too few vectors to draw a map. Embed some memories first: manage.py worker.")
        self.stdout.write(f"Drew map {layout.pk} of {memories(layout.memories)}.")
