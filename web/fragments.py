"""Fragments: the parts of pages that have many elements, as templates of Jinja2, which renders them ten times as fast.

Pages are templates of Django and include a fragment by its name, with the values that it is about; it also knows what
the page knows: `{% fragment "chips.jinja" chips=page.chips %}`.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import cast

import markupsafe
from django.template import Context, Library, Node, defaulttags, engines
from django.template.backends.jinja2 import Jinja2
from django.template.base import Parser, Token
from django.urls import reverse
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe
from jinja2 import BaseLoader, Environment, StrictUndefined, nodes
from jinja2.compiler import CodeGenerator, Frame

register = Library()


class _Compiler(CodeGenerator):
    """Compiles fragments to plainer Python: what they show are texts, numbers and attributes of dataclasses, and what
    they call are macros and functions of ours.

    Jinja2 would make an object of every escaped text, look for keys of dictionaries where it finds no attribute, and
    look at every function for what else it wants to be called with.
    """

    def write_commons(self) -> None:
        super().write_commons()
        # Once for each template, rather than for each of the values that it shows.
        self.writeline("escaped, shown, called = environment.escaped, environment.shown, environment.called")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        self.write("called(")
        self.visit(node.node, frame)
        self.signature(node, frame)
        self.write(")")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        self.write("(")
        self.visit(node.node, frame)
        self.write(f").{node.attr}")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: object) -> None:
        self.write("(escaped(value) if type(value := ")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: object) -> None:
        self.write(") is str else shown(value))")


# The one in C returns a text; `escape` is for other values.
_escaped: Callable[[str], str] = getattr(markupsafe, "_escape_inner", markupsafe.escape)


class _Environment(Environment):
    code_generator_class = _Compiler
    escaped = staticmethod(_escaped)

    @staticmethod
    def shown(value: object) -> str:
        """A value that is no plain text as HTML."""
        if type(value) is int:
            return str(value)
        return cast(str, value) if type(value) is markupsafe.Markup else markupsafe.escape(value)

    @staticmethod
    def called(function: Callable[..., object], *arguments: object, **named: object) -> object:
        return function(*arguments, **named)


def environment(*, loader: BaseLoader, auto_reload: bool, **_: object) -> Environment:
    """The environment of the fragments: text is escaped, a misspelt name is an error, lines of tags leave no space."""
    made = _Environment(
        loader=loader,
        auto_reload=auto_reload,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["url"] = _url
    return made


@lru_cache(maxsize=1_000)
def _url(name: str, *arguments: Hashable) -> str:
    """The path of a view."""
    return reverse(name, args=arguments)


class _PathNode(Node):
    def __init__(self, name: str) -> None:
        self._name = name

    def render(self, context: Context) -> str:
        return conditional_escape(_url(self._name))


@register.tag
def url(parser: Parser, token: Token) -> Node:
    """Django's tag `url`. The path of a view without arguments is looked up once: every page has dozens of them."""
    node = defaulttags.url(parser, token)
    name = node.view_name
    has_more = node.args or node.kwargs or node.asvar or name.filters
    return node if has_more or not isinstance(name.var, str) else _PathNode(name.var)


def _never() -> bool:
    return False


# For pages that do not say it.
_DEFAULTS = {"is_fragment": False, "may_curate": _never}


@register.simple_tag(takes_context=True)
def fragment(context: Context, name: str, **values: object) -> SafeString:
    """A fragment by its name, with `values` beside those of the page."""
    template = cast(Jinja2, engines["jinja2"]).env.get_template(name)
    of_page = cast(dict[str, object], context.flatten())
    known = template.new_context({**_DEFAULTS, **of_page, **values})
    try:
        # Safe, since its own engine escapes.
        return mark_safe("".join(template.root_render_func(known)))  # noqa: S308
    except Exception:
        template.environment.handle_exception()
    finally:
        # A macro refers to what it knows, which refers to the macro: all of the page would wait for the next garbage
        # collection.
        known.vars.clear()
        known.parent.clear()
