"""The sample, the memories of an invented team: its projects, and its categories, which are not offered to others."""

from django.conf import settings

from access.viewer import Viewer
from categories.models import Category
from categories.texts import known_terms
from memories.models import ImportBatch, Memory, Project
from memories.queries import visible_to

SAMPLE = settings.BASE_DIR / "memories" / "sample" / "team.jsonl"
# The end of its path, wherever this site is installed, or was.
SAMPLE_STORED = "/memories/sample/team.jsonl"


def is_sample(origin: str) -> bool:
    """Whether an import was of the sample, also from where this site was installed before."""
    return origin.endswith(SAMPLE_STORED)


def sample_projects() -> frozenset[int]:
    """The projects that came with the sample, as long as it is there."""
    done = Project.objects.filter(batch__state=ImportBatch.State.DONE, batch__origin__endswith=SAMPLE_STORED)
    return frozenset(done.values_list("pk", flat=True))


def sample_beside_others(viewer: Viewer) -> frozenset[int]:
    """The projects of the sample that a viewer sees beside memories of others; none while it is all that they see."""
    own = frozenset(pk for pk in sample_projects() if viewer.may_see(pk))
    return own if own and visible_to(viewer).exclude(project_id__in=own).exists() else frozenset()


def categories_of_sample(viewer: Viewer) -> frozenset[int]:
    """The categories that came with the sample and no memory of another project has, as far as the viewer sees.

    None while the sample is all that they see.
    """
    if not (own := sample_projects()):
        return frozenset()
    others = frozenset(Project.objects.exclude(pk__in=own).values_list("pk", flat=True))
    if viewer.project_ids is not None:
        others &= viewer.project_ids
    if not Memory.objects.filter(project_id__in=others).exists():
        return frozenset()
    ids = Category.objects.filter(batch__origin__endswith=SAMPLE_STORED).values_list("pk", flat=True)
    return frozenset(ids) - known_terms("category", ids, others)
