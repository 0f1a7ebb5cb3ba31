"""From a form to what becomes of it: refused, proposed, or done. What was not previewed is not done."""

from dataclasses import dataclass

from access.viewer import Viewer
from categories.curation.desk import CurationRefused
from categories.curation.forms import VerbForm
from categories.curation.planning import Plan
from categories.curation.reading import TermNotFound, told
from categories.curation.services import Applied, Busy, PlanChanged, curation_apply, curation_plan


@dataclass(frozen=True, slots=True)
class Proposed:
    """A plan to be shown; `changed` where it is another than the one that was agreed to."""

    plan: Plan
    changed: bool = False


def form_take(form: VerbForm, viewer: Viewer, token: str | None) -> Applied | Proposed | None:
    """Do what a form asks, as the plan of the token says, or propose it where there is no token. None where it is
    refused: the form then says why.
    """
    if not form.is_valid():
        return None
    try:
        if token is None:
            plan = curation_plan(asked=form.asked, viewer=viewer)
            for reason in plan.refusals:
                form.refuse(plan.field, reason)
            return None if plan.refusals else Proposed(plan)
        # An empty token would be that of any plan.
        return curation_apply(asked=form.asked.model_copy(update={"token": token or "none"}), viewer=viewer)
    except PlanChanged as error:
        return Proposed(error.plan, changed=True)
    except TermNotFound as error:
        form.refuse(error.field, told(error, viewer))
        return None
    except (CurationRefused, Busy) as error:
        form.refuse(getattr(error, "field", ""), str(error))
        return None
