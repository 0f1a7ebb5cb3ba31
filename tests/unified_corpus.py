"""A dozen memories with their entities and relationships in two projects, for what is found among all three kinds."""

import json
from concurrent.futures import Executor, Future

from django.core.management import call_command

from memories.embedding.pending import Refused
from memories.embedding.worker import vocabulary_embed
from memories.models import EmbeddingModel
from tests.database import fill
from tests.vectors import MODEL, embed_everything
from web.cache import clear_caches


def _entity(name, kind, **more):
    return {"record": "entity", "name": name, "type": kind, **more}


def _relationship(source, kind, target, fact="", **more):
    ends = {
        key: dict(zip(("type", "name"), end.split(":"), strict=True))
        for key, end in (("source", source), ("target", target))
    }
    return {"record": "relationship", "type": kind, "fact": fact, **ends, **more}


def _memory(pk, project, title, content, entities=(), **more):
    named = [dict(zip(("type", "name"), one.split(":"), strict=True)) for one in entities]
    return {"id": pk, "project": project, "title": title, "content": content, "entities": named, "type": "note", **more}


RECORDS = [
    {"record": "project", "slug": "mill", "name": "Mill"},
    {"record": "project", "slug": "vault", "name": "Vault"},
    _memory("m1", "mill", "The wheel turns the stone", "The water wheel turns the grinding stone.", ["part:wheel"]),
    _memory(
        "m2",
        "mill",
        "Grease for the axle",
        "The axle of the wheel wants grease each spring.",
        ["part:wheel", "part:axle"],
    ),
    _memory("m3", "mill", "Sluice opened", "The sluice was opened at dawn.", ["part:sluice"], tags=["water"]),
    _memory("m4", "mill", "Wheel inspected", "Nothing cracked on the wheel.", ["part:wheel", "person:Osk"]),
    _memory("m5", "mill", "Wheel painted", "The wheel is red now.", ["part:wheel"], tags=["paint"]),
    _memory("m6", "mill", "Flour for the bakery", "Forty sacks went out.", ["shop:Brotlade"]),
    _memory("m7", "mill", "Old plan of the race", "Kept for its measures.", ["part:tailrace"], state="archived"),
    _memory("v1", "vault", "The combination", "The vault opens for Quill alone.", ["person:Quill", "part:wheel"]),
    _memory("v2", "vault", "Hinges oiled", "The hinges of the vault were oiled.", ["part:hinge"]),
    _entity("wheel", "part", aliases=["waterwheel"], description="Twelve spokes of larch, built by Osk in 1904."),
    _entity("Quill", "person", description="Keeper of the combination."),
    _entity("orphan spindle", "part", description="Named by nothing."),
    _relationship(
        "part:wheel", "turns", "part:axle", "The wheel turns the grinding stone.", evidence=["m1"], confidence=0.9
    ),
    _relationship(
        "person:Osk", "inspects", "part:wheel", "Osk looks for cracks every Friday with a lantern.", evidence=["m4"]
    ),
    _relationship(
        "person:Quill", "guards", "part:hinge", "Quill guards the hinge of the vault.", evidence=["v1", "v2"]
    ),
    _relationship(
        "part:sluice", "feeds", "part:wheel", "The sluice feeds the wheel.", evidence=["m3", "v1"], confidence=0.2
    ),
    _relationship("part:axle", "rests_on", "part:hinge", "Nobody has said where this is known from."),
]


def embed_all():
    """Vectors for everything, by the small deterministic model."""
    kept = embed_everything()
    model = EmbeddingModel.objects.get()
    vocabulary_embed(model.pk, MODEL, stop=lambda: False, refused=Refused())
    return kept


def bring_in_mill(folder):
    path = folder / "mill.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    call_command("import_memories", str(path), verbosity=0)


def fill_with_mill(folder):
    """The memories, entities and relationships with their vectors."""

    def build():
        bring_in_mill(folder)
        embed_all()

    fill("mill with vectors", build)
    clear_caches()


class AtOnce(Executor):
    """Runs what it is given then and there, in the transaction of the test; but for the legs named, which never end."""

    def __init__(self, *never):
        self.never = never

    def submit(self, fn, leg, *args):
        future = Future()
        if leg.name not in self.never:
            future.set_result(fn(leg, *args))
        return future
