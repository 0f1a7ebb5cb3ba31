"""Projects, sessions, memories and their vectors, and import batches.

Schema rules that suit a distributed Postgres: the application draws ids, every child has a composite primary key that
begins with `memory_id`, reference tables are small, and facet values are arrays in the memory.
"""

from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import MD5, Cast, Coalesce, Lower, Now
from django.utils import timezone
from pgvector.django import HalfVectorField, HnswIndex


class Project(models.Model):
    """A set of memories with its own members and its own language."""

    id = models.BigAutoField(primary_key=True)
    slug = models.CharField(max_length=100)
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    language = models.CharField(max_length=20, default="english", help_text="The Snowball stemmer for its texts.")
    secrets = models.CharField(
        max_length=10,
        blank=True,
        db_default="",
        default="",
        choices=[("mask", "mask them"), ("refuse", "refuse the memory"), ("off", "leave them")],
        help_text="What is done about secrets in its memories; if empty, as on the whole site.",
    )
    batch = models.ForeignKey("ImportBatch", models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["slug"]
        constraints = [models.UniqueConstraint(fields=["slug"], name="project_slug_unique")]

    def __str__(self) -> str:
        return self.slug


# When a session began, as far as is known.
SESSION_BEGUN = Coalesce("started_at", "first_at")
NEWEST_SESSIONS = (SESSION_BEGUN.desc(nulls_last=True), models.F("id").desc())


class Session(models.Model):
    """A run of an agent, or a session of a person, that memories come from."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, models.CASCADE, related_name="sessions")
    external_id = models.CharField(max_length=200)
    agent = models.CharField(max_length=200, blank=True)
    title = models.CharField(max_length=500, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    first_at = models.DateTimeField(null=True, blank=True, help_text="The date of the earliest memory stored in it.")
    batch = models.ForeignKey("ImportBatch", models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "external_id"], name="session_external_unique")]
        indexes = [models.Index(*NEWEST_SESSIONS, name="session_begun_idx")]

    def __str__(self) -> str:
        return self.external_id

    @property
    def begun_at(self) -> datetime | None:
        """When it began, as far as is known."""
        return self.started_at or self.first_at


class ImportBatch(models.Model):
    """An import, its source and its report. A batch can be undone as a whole."""

    class State(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        UNDONE = "undone"

    id = models.BigAutoField(primary_key=True)
    origin = models.TextField(help_text="The path it was read from.")
    format = models.CharField(max_length=40)
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)
    read = models.IntegerField(default=0)
    created = models.IntegerField(default=0)
    updated = models.IntegerField(default=0)
    unchanged = models.IntegerField(default=0)
    refused = models.IntegerField(default=0)
    report = models.JSONField(default=dict, blank=True)
    followed = models.ForeignKey(
        "FollowedSource",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="batches",
        db_constraint=False,
        help_text="The source that is followed, and whose changes it brought.",
    )

    class Meta:
        verbose_name_plural = "import batches"
        ordering = ["-id"]
        indexes = [
            # Readings that brought changes only, the last of which are kept.
            models.Index(
                fields=["followed", "-id"],
                name="importbatch_changes_idx",
                condition=models.Q(followed__isnull=False, state="done", created=0),
            )
        ]

    def __str__(self) -> str:
        return f"batch {self.pk}: {self.origin}"


class FollowedSource(models.Model):
    """A source of memories on this machine that is followed: what changes there is changed here. See
    `transfer/follow/`.

    `version` rises with every reading that found something, so that of two readers at the same time one gives up.
    """

    id = models.BigAutoField(primary_key=True)
    path = models.TextField()
    format = models.CharField(max_length=40)
    project = models.CharField(max_length=100, blank=True, help_text="For memories that name none.")
    read_as = models.JSONField(
        default=dict,
        db_default={},
        help_text="Chosen for its records: values of all, types of notes, and the order of dates.",
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", db_constraint=False, db_index=False
    )
    api_key = models.ForeignKey(
        "access.ApiKey", models.SET_NULL, null=True, related_name="+", db_constraint=False, db_index=False
    )
    by_command = models.BooleanField(default=False, help_text="Started in a terminal of this machine.")
    created_at = models.DateTimeField(default=timezone.now)
    stamp = models.TextField(blank=True, help_text="Its state when it was last read; empty to read it again.")
    version = models.IntegerField(default=0)
    memories = models.IntegerField(default=0, help_text="Those that it has.")
    refused = models.IntegerField(default=0, help_text="Its records that could not be taken.")
    looked_at = models.DateTimeField(null=True)
    read_at = models.DateTimeField(null=True, help_text="When it was last read because it had changed.")
    changed_at = models.DateTimeField(null=True, help_text="When something last came of that.")
    error = models.TextField(blank=True, help_text="Why it cannot be followed at present.")
    gone_waiting = models.IntegerField(default=0, help_text="Memories that wait to be deleted, since they are many.")
    gone_answer = models.CharField(max_length=10, blank=True, help_text="What is done about them: delete, or keep.")
    written_revision = models.BigIntegerField(
        null=True, help_text="The revision up to which edits made here are written to it; null if none are."
    )

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["path"], name="followedsource_path_unique")]

    def __str__(self) -> str:
        return self.path

    @property
    def writes_back(self) -> bool:
        """Whether edits made here are written to it."""
        return self.written_revision is not None


class FollowedRecord(models.Model):
    """A record of a followed source as it was last seen: hashes of its location and of the record.

    `stamp` is 0 for a record that is gone; its memory is remembered in case it comes back. `memory_id` is null for what
    is no memory, or could not be taken.
    """

    pk = models.CompositePrimaryKey("source_id", "key")
    source = models.ForeignKey(FollowedSource, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    key = models.BigIntegerField()
    stamp = models.BigIntegerField()
    memory_id = models.BigIntegerField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["source", "memory_id"], include=["stamp"], name="followedrecord_memory_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.source_id}/{self.key}"


class SourceConflict(models.Model):
    """A memory that was edited here and changed, or is gone, in its source. It stays as it is until somebody decides.

    `record` is the record of the source, null if it is gone there.
    """

    id = models.BigAutoField(primary_key=True)
    source = models.ForeignKey(FollowedSource, models.CASCADE, related_name="conflicts", db_constraint=False)
    memory_id = models.BigIntegerField()
    record = models.JSONField(null=True)
    edit = models.TextField(help_text="Who edited the memory here, and when.")
    noticed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["memory_id", "source"], name="sourceconflict_unique")]

    def __str__(self) -> str:
        return f"#{self.memory_id} in {self.source}"


class Memory(models.Model):
    """A memory.

    `id` is drawn from the sequence `memory_id_seq` before the insert. The facet columns repeat the link tables as
    arrays, updated in the same transaction by `memories.services`, so that a facet count is a single scan.
    """

    class Trust(models.IntegerChoices):
        """The origins of words, the least trusted first. See `memories/trust.py`."""

        OUTSIDE = 0, "from outside"
        AGENT = 1, "by an agent"
        PERSON = 2, "by a person"

    class State(models.TextChoices):
        ACTIVE = "active"
        PROPOSED = "proposed"
        ARCHIVED = "archived"
        SUPERSEDED = "superseded"
        DELETED = "deleted"

    id = models.BigIntegerField(primary_key=True)
    project = models.ForeignKey(Project, models.PROTECT, related_name="memories", db_index=False)
    memory_type = models.CharField(max_length=100, default="note")
    title = models.TextField(blank=True)
    summary = models.TextField(blank=True)
    content = models.TextField()
    tags = ArrayField(models.TextField(), default=list, blank=True)
    state = models.CharField(max_length=10, choices=State, default=State.ACTIVE)
    state_reason = models.TextField(blank=True)
    importance = models.FloatField(null=True, blank=True, help_text="0 to 1; empty if unknown.")
    confidence = models.FloatField(null=True, blank=True, help_text="0 to 1; empty if unknown.")
    pinned = models.BooleanField(default=False)
    authors = ArrayField(models.TextField(), default=list, blank=True)
    agent = models.CharField(max_length=200, blank=True)
    session = models.ForeignKey(
        Session, models.SET_NULL, null=True, blank=True, related_name="memories", db_index=False
    )
    source = models.CharField(max_length=200, blank=True, help_text="The system it came from.")
    external_id = models.CharField(max_length=500, blank=True, help_text="Its id there.")
    source_uri = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    happened_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_to = models.DateTimeField(null=True, blank=True)
    superseded_by = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="supersedes", db_constraint=False, db_index=False
    )
    content_hash = models.CharField(
        max_length=32, help_text="Of title and content, to know a repeat by, and a text that is yet to be embedded."
    )
    record_hash = models.CharField(max_length=32, blank=True, help_text="Of the record as it was imported.")
    raw = models.JSONField(null=True, blank=True, help_text="The record as it was imported.")
    batch = models.ForeignKey(
        ImportBatch, models.SET_NULL, null=True, blank=True, related_name="memories", db_index=False
    )
    trust = models.SmallIntegerField(
        null=True, blank=True, choices=Trust, help_text="The origin of its words; empty if earlier versions stored it."
    )
    terms = SearchVectorField(null=True, editable=False)
    category_ids = ArrayField(models.IntegerField(), default=list, blank=True, editable=False)
    category_path_ids = ArrayField(models.IntegerField(), default=list, blank=True, editable=False)
    concept_ids = ArrayField(models.IntegerField(), default=list, blank=True, editable=False)
    entity_ids = ArrayField(models.IntegerField(), default=list, blank=True, editable=False)

    masked_secrets: tuple[str, ...] = ()
    """The marks in place of secrets that the write which returned it has masked."""

    class Meta:
        verbose_name_plural = "memories"
        indexes = [
            GinIndex(fields=["terms"], name="memory_terms_gin"),
            GinIndex(fields=["tags"], name="memory_tags_gin"),
            GinIndex(fields=["authors"], name="memory_authors_gin"),
            GinIndex(fields=["category_ids"], name="memory_category_gin"),
            GinIndex(fields=["category_path_ids"], name="memory_category_path_gin"),
            GinIndex(fields=["concept_ids"], name="memory_concept_gin"),
            GinIndex(fields=["entity_ids"], name="memory_entity_gin"),
            models.Index(fields=["-created_at", "-id"], name="memory_created_idx"),
            models.Index(fields=["-updated_at", "-id"], name="memory_updated_idx"),
            # Totals of the default states are index-only scans of it.
            models.Index(fields=["state", "-created_at", "-id"], name="memory_state_created_idx"),
            models.Index(fields=["project", "-created_at", "-id"], name="memory_project_created_idx"),
            # For the context of a session; `explorer.sessions.context` has the same condition.
            models.Index(
                fields=["project", "-pinned", "-created_at", "-id"],
                name="memory_important_idx",
                condition=models.Q(models.Q(pinned=True) | models.Q(importance__gte=0.8), state="active"),
            ),
            models.Index(fields=["memory_type"], name="memory_type_idx"),
            models.Index(fields=["project", "external_id"], name="memory_external_idx"),
            models.Index(fields=["project", "content_hash"], name="memory_content_hash_idx"),
            # Pending texts are found by an index-only scan of it.
            models.Index(fields=["id"], include=["content_hash"], name="memory_text_idx"),
            models.Index(fields=["batch"], name="memory_batch_idx", condition=models.Q(batch__isnull=False)),
            models.Index(fields=["session"], name="memory_session_idx", condition=models.Q(session__isnull=False)),
            models.Index(
                fields=["superseded_by"], name="memory_superseded_idx", condition=models.Q(superseded_by__isnull=False)
            ),
            # The names by which links may mean it; `memories.link_targets` has the same expressions.
            models.Index(MD5(Lower("title")), name="memory_title_idx"),
            models.Index(
                MD5(Lower(models.Func("source_uri", models.Value("[^/]*$"), function="substring"))),
                name="memory_file_idx",
                condition=~models.Q(source_uri="") & ~models.Q(source_uri__contains="://"),
            ),
            GinIndex(
                Cast(
                    Lower(Cast(KeyTransform("aliases", "raw"), models.TextField())),
                    models.JSONField(),
                ),
                name="memory_alias_gin",
                condition=models.Q(raw__has_key="aliases"),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["active", "proposed", "archived", "superseded", "deleted"]),
                name="memory_state_known",
            ),
            models.CheckConstraint(
                condition=models.Q(importance__isnull=True) | models.Q(importance__range=(0, 1)),
                name="memory_importance_range",
            ),
            models.CheckConstraint(
                condition=models.Q(confidence__isnull=True) | models.Q(confidence__range=(0, 1)),
                name="memory_confidence_range",
            ),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.title or self.content[:60]}"


class EmbeddingModel(models.Model):
    """A model that embeds texts. The serving model embeds queries; another one may be building, to replace it."""

    class State(models.TextChoices):
        BUILDING = "building"
        SERVING = "serving"
        RETIRED = "retired"

    id = models.SmallIntegerField(primary_key=True)
    name = models.CharField(max_length=200)
    source = models.TextField(help_text="Where it is loaded from: a path, or a name that sentence-transformers knows.")
    dimensions = models.SmallIntegerField()
    min_similarity = models.FloatField(help_text="What is less similar to a query does not match it by meaning.")
    state = models.CharField(max_length=10, choices=State, default=State.BUILDING)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="embeddingmodel_name_unique"),
            models.UniqueConstraint(
                fields=["state"], condition=models.Q(state="serving"), name="embeddingmodel_one_serving"
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["building", "serving", "retired"]), name="embeddingmodel_state_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Chunk(models.Model):
    """A window of a memory's content, and its vector. Searches compare chunks and show memories.

    Nine rows fill a page, and a scan reads nothing else: the vector is stored in the row (`STORAGE PLAIN`), and the
    text is the part of the memory's content between `start` and `end`. The database removes chunks with their memory.
    """

    pk = models.CompositePrimaryKey("memory_id", "model_id", "ordinal")
    memory = models.ForeignKey(Memory, models.DO_NOTHING, related_name="chunks", db_constraint=False, db_index=False)
    model = models.ForeignKey(EmbeddingModel, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    ordinal = models.IntegerField()
    start = models.IntegerField(help_text="Where it begins in the content, in characters.")
    end = models.IntegerField(help_text="Where it ends.")
    embedding = HalfVectorField(
        dimensions=384, help_text="The number of dimensions is set by `manage.py embedding_dimensions`."
    )

    class Meta:
        # Denser than pgvector's default (m=16, ef_construction=64): half as many rows have to be visited to find the
        # nearest in clustered data, for an index that takes 2.6 times as long to build.
        indexes = [
            HnswIndex(
                fields=["embedding"],
                name="chunk_embedding_hnsw",
                m=24,
                ef_construction=128,
                opclasses=["halfvec_cosine_ops"],
            )
        ]

    def __str__(self) -> str:
        return f"#{self.memory_id}/{self.ordinal}"


class EmbeddedMemory(models.Model):
    """The text of a memory that a model has embedded, by its hash, and the number of its chunks.

    A memory is pending for a model if it has no row, or one with another hash.
    """

    pk = models.CompositePrimaryKey("memory_id", "model_id")
    memory = models.ForeignKey(Memory, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    model = models.ForeignKey(EmbeddingModel, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    content_hash = models.CharField(max_length=32)
    chunks = models.IntegerField()

    class Meta:
        indexes = [
            # Merged with memory_text_idx to find pending memories, and counted for the progress.
            models.Index(fields=["model", "memory"], include=["content_hash"], name="embeddedmemory_hash_idx")
        ]

    def __str__(self) -> str:
        return f"#{self.memory_id} by {self.model_id}"


class MapLayout(models.Model):
    """A map of meaning: places of memories on a plane, near each other where the memories mean similar things.

    The layout with the highest number is in use. `revision` rises with every batch of places; each place has that of
    its batch, so that readers load only what is new. See `memories/meaning_map/`.
    """

    id = models.IntegerField(primary_key=True)
    model_id = models.SmallIntegerField(help_text="The embedding model whose vectors it arranges.")
    memories = models.IntegerField(help_text="How many memories there were when it was drawn.")
    revision = models.BigIntegerField(default=0)
    drawn_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"map {self.id}"


class MapPlace(models.Model):
    """The place of a memory on a map, as whole numbers from 0 to 65,535. It stays until the memory's text changes.

    `cell` is the square of 256 by 256 around it. An anchor was laid out together with all other anchors; other memories
    are placed between the anchors that they resemble. The database removes places with their memory.
    """

    pk = models.CompositePrimaryKey("memory_id", "layout_id")
    memory = models.ForeignKey(Memory, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    layout = models.ForeignKey(MapLayout, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    x = models.IntegerField()
    y = models.IntegerField()
    cell = models.IntegerField()
    revision = models.BigIntegerField()
    is_anchor = models.BooleanField(default=False)
    content_hash = models.CharField(max_length=32, help_text="Of the text that was placed.")

    class Meta:
        indexes = [
            models.Index(fields=["layout", "cell"], name="mapplace_cell_idx"),
            models.Index(fields=["layout", "revision"], name="mapplace_revision_idx"),
            # Merged with embeddedmemory_hash_idx to find memories without a place.
            models.Index(fields=["layout", "memory"], include=["content_hash"], name="mapplace_hash_idx"),
            models.Index(fields=["layout"], name="mapplace_anchor_idx", condition=models.Q(is_anchor=True)),
        ]

    def __str__(self) -> str:
        return f"#{self.memory_id} at {self.x}, {self.y}"


class MemoryLink(models.Model):
    """A link in a memory's record: to another memory, or to something outside."""

    pk = models.CompositePrimaryKey("memory_id", "ordinal")
    memory = models.ForeignKey(Memory, models.CASCADE, related_name="links", db_index=False)
    ordinal = models.SmallIntegerField()
    rel = models.CharField(max_length=100)
    target = models.CharField(max_length=500, help_text="The name it was linked by.")
    url = models.TextField(blank=True)
    target_memory = models.ForeignKey(
        Memory, models.SET_NULL, null=True, blank=True, related_name="backlinks", db_constraint=False, db_index=False
    )

    class Meta:
        indexes = [
            models.Index(fields=["target_memory"], name="memorylink_target_idx"),
            models.Index(Lower("target"), name="memorylink_name_idx", condition=models.Q(target_memory__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"#{self.memory_id} {self.rel} {self.target}"


class Recall(models.Model):
    """How often a memory was recalled, and when last; no row for one that never was. See `memories/recalls.py`.

    `revision` rises with every batch of recalls, so that readers load only what is new. The database removes recalls
    with their memory.
    """

    memory = models.OneToOneField(
        Memory, models.DO_NOTHING, primary_key=True, related_name="+", db_constraint=False, db_index=False
    )
    total = models.IntegerField()
    by_agents = models.IntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    revision = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["revision"], name="recall_revision_idx"),
            models.Index(fields=["last_at"], name="recall_last_idx"),
        ]

    def __str__(self) -> str:
        return f"#{self.memory_id}: {self.total}"


class RecallDay(models.Model):
    """The recalls of a memory on a day in UTC. Days are removed after a quarter of a year; a Recall counts for ever."""

    pk = models.CompositePrimaryKey("memory_id", "day")
    memory = models.ForeignKey(Memory, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    day = models.DateField()
    total = models.IntegerField()
    by_agents = models.IntegerField()

    class Meta:
        indexes = [models.Index(fields=["day"], name="recallday_day_idx")]

    def __str__(self) -> str:
        return f"#{self.memory_id} on {self.day}: {self.total}"


class MemoryMark(models.Model):
    """Why a memory may steer a model that reads it; most have no row. See `memories/marks.py`.

    The database removes marks with their memory.
    """

    memory = models.OneToOneField(
        Memory, models.DO_NOTHING, primary_key=True, related_name="+", db_constraint=False, db_index=False
    )
    marks = ArrayField(models.CharField(max_length=20))
    text_hash = models.CharField(max_length=32, help_text="Of the texts that were looked at.")
    harmless_at = models.DateTimeField(null=True, blank=True, help_text="When somebody judged the text harmless.")
    harmless_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )

    def __str__(self) -> str:
        return f"#{self.memory_id}: {', '.join(self.marks)}"


class MemoryRead(models.Model):
    """Memories that somebody was given at once; see `memories/reads.py`.

    Nothing that it names is a key of another table: it outlasts memories, and whoever read them.
    """

    class ReadDoor(models.TextChoices):
        PAGE = "page"
        API = "api"
        MCP = "mcp"
        CLAUDE_MEM = "claude-mem"
        FEED = "feed"
        ADMIN = "admin"
        COMMAND = "command"

    class Kind(models.TextChoices):
        """How much of the memories was given."""

        LIST = "list"
        WHOLE = "whole"
        CONTEXT = "context"
        EXPORT = "export"

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    user_id = models.IntegerField(null=True)
    api_key_id = models.BigIntegerField(null=True)
    door = models.CharField(max_length=10, choices=ReadDoor)
    operation = models.CharField(max_length=200)
    session = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, choices=Kind)
    query = models.TextField()
    memory_ids = ArrayField(models.BigIntegerField())
    number = models.IntegerField()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["at"], name="memoryread_at_idx"),
            models.Index(
                fields=["user_id", "id"], name="memoryread_user_idx", condition=models.Q(user_id__isnull=False)
            ),
            models.Index(
                fields=["api_key_id", "id"], name="memoryread_key_idx", condition=models.Q(api_key_id__isnull=False)
            ),
            models.Index(fields=["session", "id"], name="memoryread_session_idx", condition=~models.Q(session="")),
            models.Index(fields=["id"], name="memoryread_large_idx", condition=models.Q(number__gt=1_000)),
            GinIndex(fields=["memory_ids"], name="memoryread_memories_gin", fastupdate=False),
        ]

    def __str__(self) -> str:
        return f"{self.operation}: {self.number} memories"


class Corpus(models.Model):
    """A single row whose revision rises with every change, so that data derived from all memories can be cached."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    revision = models.BigIntegerField(default=0)
    vectors = models.BigIntegerField(
        default=0,
        db_default=0,
        help_text="Rises with every change to the vectors, so that what they give can be kept.",
    )
    indexed = models.BooleanField(
        default=False, db_default=False, help_text="Whether changes are written to the outbox, for the derived index."
    )
    generation = models.CharField(
        max_length=60, default="", db_default="", blank=True, help_text="The derived index that the outbox is for."
    )
    replica = models.CharField(
        max_length=60,
        default="",
        db_default="",
        blank=True,
        help_text="The replica of the vectors that changes to them are written down for.",
    )
    marked_by = models.SmallIntegerField(
        default=0, db_default=0, help_text="The rules by which memories have been looked at for marks."
    )
    marked_below = models.BigIntegerField(
        default=0, db_default=0, help_text="Memories with smaller ids are yet to be looked at by these rules."
    )

    class Meta:
        verbose_name_plural = "corpus"

    def __str__(self) -> str:
        return f"revision {self.revision}"


class OutboxEntry(models.Model):
    """A change not yet applied to the index, recorded by triggers: `memory_id` is a memory, a batch's id negated for
    all memories of that batch, or 0 for everything. See `search/engines/index/outbox.py`.
    """

    id = models.BigAutoField(primary_key=True)
    memory_id = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "memories_outbox"
        verbose_name_plural = "outbox entries"

    def __str__(self) -> str:
        return f"{self.id}: " + (f"batch {-self.memory_id}" if self.memory_id < 0 else f"#{self.memory_id}")


class VectorChange(models.Model):
    """A revision of the vectors not yet applied to their replica, and the memories whose vectors it changed. See
    `search/engines/vectors/pgvector.py`.
    """

    revision = models.BigIntegerField(primary_key=True)
    model_id = models.SmallIntegerField()
    memory_ids = ArrayField(models.BigIntegerField())

    def __str__(self) -> str:
        return f"revision {self.revision}: {len(self.memory_ids)} memories"
