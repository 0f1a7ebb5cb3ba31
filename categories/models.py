"""How memories are organised: the category tree, concepts, entities, relationships, and their links to memories."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from pgvector.django import HalfVectorField

HELD = "The projects in which it holds; all if there are none."


class MadeBy(models.TextChoices):
    """The maker of a link."""

    HUMAN = "human"
    IMPORT = "import"
    MODEL = "model"


def aliases_index(name: str) -> GinIndex:
    """The index that finds an alias ignoring case. Few rows have aliases; the others are not in it."""
    lowered = models.Func("aliases", function="categories_lower_all")
    return GinIndex(lowered, condition=~models.Q(aliases=[]), name=name)


class SearchedVocabulary(models.Model):
    """Search terms of a row, maintained by `categories.searched_terms`."""

    terms = SearchVectorField(null=True, editable=False)
    terms_hash = models.CharField(
        max_length=32, blank=True, db_default="", default="", editable=False, help_text="Of the text they are of."
    )

    class Meta:
        abstract = True


class PublicTexts(models.Model):
    """The projects in which the aliases and the description of a term hold; see `categories.texts`."""

    alias_projects = models.JSONField(
        null=True, editable=False, help_text="The projects of each alias that is not public."
    )
    description_projects = ArrayField(models.BigIntegerField(), null=True, editable=False, help_text=HELD)

    class Meta:
        abstract = True


class Category(SearchedVocabulary, PublicTexts):
    """A node of the category tree. `path` is the unique slug path used in URLs; it contains those of the ancestors.

    `parent` has a database constraint, unlike references among memories: the tree is a small reference table.
    """

    id = models.BigAutoField(primary_key=True)
    parent = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="children")
    name = models.CharField(max_length=300)
    path = models.CharField(max_length=1500)
    depth = models.SmallIntegerField(default=1)
    aliases = ArrayField(models.TextField(), default=list, blank=True)
    description = models.TextField(blank=True)
    related_ids = ArrayField(models.IntegerField(), default=list, blank=True)
    batch = models.ForeignKey("memories.ImportBatch", models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "categories"
        ordering = ["path"]
        constraints = [models.UniqueConstraint(fields=["path"], name="category_path_unique")]
        indexes = [
            models.Index(Lower("name"), name="category_name_lower_idx"),
            GinIndex(fields=["name"], name="category_name_trgm", opclasses=["gin_trgm_ops"]),
            GinIndex(fields=["terms"], name="category_terms_gin"),
            aliases_index("category_aliases_lower_gin"),
        ]

    def __str__(self) -> str:
        return self.path


class Concept(SearchedVocabulary, PublicTexts):
    """An idea that memories are about."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=300)
    concept_type = models.CharField(max_length=100, blank=True)
    aliases = ArrayField(models.TextField(), default=list, blank=True)
    description = models.TextField(blank=True)
    broader_ids = ArrayField(models.IntegerField(), default=list, blank=True)
    narrower_ids = ArrayField(models.IntegerField(), default=list, blank=True)
    related_ids = ArrayField(models.IntegerField(), default=list, blank=True)
    weight = models.FloatField(null=True, blank=True)
    batch = models.ForeignKey("memories.ImportBatch", models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(Lower("name"), name="concept_name_unique")]
        indexes = [
            GinIndex(fields=["name"], name="concept_name_trgm", opclasses=["gin_trgm_ops"]),
            GinIndex(fields=["terms"], name="concept_terms_gin"),
            aliases_index("concept_aliases_lower_gin"),
        ]

    def __str__(self) -> str:
        return self.name


class Entity(SearchedVocabulary, PublicTexts):
    """A thing that memories mention: a person, a module, a host. Written `type:name` where the type matters."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=500)
    entity_type = models.CharField(max_length=100)
    aliases = ArrayField(models.TextField(), default=list, blank=True)
    description = models.TextField(blank=True)
    batch = models.ForeignKey("memories.ImportBatch", models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "entities"
        ordering = ["name", "entity_type"]
        constraints = [models.UniqueConstraint(Lower("name"), "entity_type", name="entity_name_type_unique")]
        indexes = [
            GinIndex(fields=["name"], name="entity_name_trgm", opclasses=["gin_trgm_ops"]),
            aliases_index("entity_aliases_lower_gin"),
            GinIndex(fields=["terms"], name="entity_terms_gin"),
        ]

    def __str__(self) -> str:
        return f"{self.entity_type}:{self.name}"


class Relationship(SearchedVocabulary):
    """A fact between two entities, with the memories that support it."""

    id = models.BigAutoField(primary_key=True)
    source = models.ForeignKey(Entity, models.CASCADE, related_name="relationships_out", db_index=False)
    relationship_type = models.CharField(max_length=100)
    target = models.ForeignKey(Entity, models.CASCADE, related_name="relationships_in")
    fact = models.TextField(blank=True)
    confidence = models.FloatField(null=True, blank=True)
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_to = models.DateTimeField(null=True, blank=True)
    evidence_ids = ArrayField(models.BigIntegerField(), default=list, blank=True)
    batch = models.ForeignKey("memories.ImportBatch", models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "relationship_type", "target"], name="relationship_unique")
        ]
        indexes = [
            GinIndex(fields=["evidence_ids"], name="relationship_evidence_gin"),
            GinIndex(fields=["terms"], name="relationship_terms_gin"),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.relationship_type} {self.target}"


class VocabularyVector(models.Model):
    """The vector of the text of a row of the vocabulary, with the hash of that text.

    There are thousands, not millions: a scan of these narrow rows is faster than an index. The database removes a
    vector with its row.
    """

    model = models.ForeignKey(
        "memories.EmbeddingModel", models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )
    text_hash = models.CharField(max_length=32)
    embedding = HalfVectorField(
        dimensions=384, help_text="The number of dimensions is set by `manage.py embedding_dimensions`."
    )

    class Meta:
        abstract = True


class EntityVector(VocabularyVector):
    pk = models.CompositePrimaryKey("entity_id", "model_id")
    entity = models.ForeignKey(Entity, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)

    def __str__(self) -> str:
        return f"entity {self.entity_id} by {self.model_id}"


class ConceptVector(VocabularyVector):
    pk = models.CompositePrimaryKey("concept_id", "model_id")
    concept = models.ForeignKey(Concept, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)

    def __str__(self) -> str:
        return f"concept {self.concept_id} by {self.model_id}"


class CategoryVector(VocabularyVector):
    pk = models.CompositePrimaryKey("category_id", "model_id")
    category = models.ForeignKey(Category, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)

    def __str__(self) -> str:
        return f"category {self.category_id} by {self.model_id}"


class RelationshipVector(VocabularyVector):
    pk = models.CompositePrimaryKey("relationship_id", "model_id")
    relationship = models.ForeignKey(
        Relationship, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )

    def __str__(self) -> str:
        return f"relationship {self.relationship_id} by {self.model_id}"


class VocabularyLink(models.Model):
    """Fields of the three link tables."""

    made_by = models.CharField(max_length=10, choices=MadeBy, default=MadeBy.HUMAN)
    weight = models.FloatField(default=1.0)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        abstract = True


class CategoryLink(VocabularyLink):
    pk = models.CompositePrimaryKey("memory_id", "category_id")
    memory = models.ForeignKey("memories.Memory", models.CASCADE, related_name="category_links", db_index=False)
    category = models.ForeignKey(Category, models.PROTECT, related_name="links")

    def __str__(self) -> str:
        return f"#{self.memory_id} in {self.category_id}"


class ConceptLink(VocabularyLink):
    pk = models.CompositePrimaryKey("memory_id", "concept_id")
    memory = models.ForeignKey("memories.Memory", models.CASCADE, related_name="concept_links", db_index=False)
    concept = models.ForeignKey(Concept, models.PROTECT, related_name="links")

    def __str__(self) -> str:
        return f"#{self.memory_id} about {self.concept_id}"


class EntityLink(VocabularyLink):
    pk = models.CompositePrimaryKey("memory_id", "entity_id")
    memory = models.ForeignKey("memories.Memory", models.CASCADE, related_name="entity_links", db_index=False)
    entity = models.ForeignKey(Entity, models.PROTECT, related_name="links")

    def __str__(self) -> str:
        return f"#{self.memory_id} names {self.entity_id}"


class FormerPath(models.Model):
    """The path of a category before it was renamed, moved or merged; it still resolves to the category.

    A write to a project that has no memory of the category may make another category of this path. The database removes
    a former path with its category.
    """

    id = models.BigAutoField(primary_key=True)
    path = models.CharField(max_length=1500)
    category = models.ForeignKey(Category, models.DO_NOTHING, related_name="former_paths", db_constraint=False)
    project_ids = ArrayField(models.BigIntegerField(), null=True, editable=False, help_text=HELD)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["path"], name="formerpath_path_unique")]

    def __str__(self) -> str:
        return f"{self.path} → {self.category_id}"


class TagAlias(models.Model):
    """Another name of a tag, which resolves to it. Only projects that do not have the tag may have one of this name."""

    id = models.BigAutoField(primary_key=True)
    alias = models.CharField(max_length=200)
    tag = models.CharField(max_length=200)
    project_ids = ArrayField(models.BigIntegerField(), null=True, editable=False, help_text=HELD)

    class Meta:
        verbose_name_plural = "tag aliases"
        ordering = ["alias"]
        constraints = [
            models.UniqueConstraint(fields=["alias"], name="tagalias_alias_unique"),
            models.CheckConstraint(condition=~models.Q(alias=models.F("tag")), name="tagalias_not_itself"),
        ]
        indexes = [models.Index(fields=["tag"], name="tagalias_tag_idx")]

    def __str__(self) -> str:
        return f"{self.alias} → {self.tag}"


class LocalText(models.Model):
    """A name or the description of a term that holds in some projects only: a curator of these alone wrote it.

    A term is a row of the vocabulary, or a tag. Like tags, ids are no foreign keys: `check_vocabulary` finds rows whose
    term no longer exists.
    """

    class Role(models.TextChoices):
        ALIAS = "alias"
        PATH = "path"
        DESCRIPTION = "description"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=10, help_text="category, concept, entity or tag.")
    term_id = models.BigIntegerField(null=True)
    tag = models.CharField(max_length=200, blank=True, default="", db_default="")
    role = models.CharField(max_length=12, choices=Role)
    text = models.TextField()
    project_ids = ArrayField(models.BigIntegerField())

    class Meta:
        indexes = [
            # By name, in any case. Descriptions may be longer than an entry of an index.
            models.Index(Lower("text"), name="localtext_name_idx", condition=~models.Q(role="description")),
            models.Index(fields=["kind", "term_id"], name="localtext_term_idx"),
            models.Index(fields=["tag"], name="localtext_tag_idx", condition=~models.Q(tag="")),
        ]

    def __str__(self) -> str:
        return f"{self.role} of the {self.kind} {self.tag or self.term_id}: {self.text}"
