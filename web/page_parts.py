"""Parts of the site's pages on those of the admin, whose templates are Django's."""

from django.template import Context, Library
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

register = Library()


@register.simple_tag(takes_context=True)
def page_part(context: Context, name: str, **values: object) -> SafeString:
    """A template of the site by its name."""
    # Safe, since its own engine escapes.
    return mark_safe(render_to_string(name, values, context["request"]))  # noqa: S308
