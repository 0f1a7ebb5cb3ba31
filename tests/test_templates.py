"""The templates can be read: no formatter breaks their lines."""

import re
from pathlib import Path

from django.template import engines
from jinja2 import nodes
from jinja2.meta import find_referenced_templates, find_undeclared_variables

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
FILES = sorted(TEMPLATES.rglob("*.html"))
MAX_LINE_LENGTH = 140


def test_no_line_of_a_template_is_too_long():
    too_long = [
        f"{path.relative_to(TEMPLATES)}:{number}: {len(line)} characters"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LINE_LENGTH
    ]
    assert too_long == []


def test_no_template_has_a_style_of_its_own():
    """The policy of the pages forbids style attributes and elements: a browser would ignore them."""
    styled = [
        f"{path.relative_to(TEMPLATES)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if " style=" in line or "<style" in line
    ]
    assert styled == []


def test_no_template_passes_text_unescaped_but_what_libraries_write_themselves():
    unescaped = {
        f"{path.relative_to(TEMPLATES)}: {found}"
        for path in FILES
        for found in re.findall(r"\{[{%][^}]*(?:\|\s*safe\b|autoescape|mark_safe)[^}]*\}\}?", path.read_text())
    }
    assert unescaped == {
        # Django's own words about its fields.
        "access/account.html: {{ field.help_text|safe }}",
        # JSON of the address of the OpenAPI document, as in Ninja's own template.
        "ninja/swagger.html: {{ swagger_settings|safe }}",
    }


def test_every_template_of_a_page_compiles_and_includes_what_exists():
    environment = engines["jinja2"].env
    for path in FILES:
        if TEMPLATES / "django" in path.parents:
            continue
        name = str(path.relative_to(TEMPLATES))
        environment.get_template(name)
        for other in find_referenced_templates(environment.parse(path.read_text())):
            assert (TEMPLATES / str(other)).is_file(), (name, other)


def test_a_block_that_is_rendered_alone_needs_nothing_from_the_top_of_its_template():
    """HTMX swaps single blocks; macros and values outside of them are there for whole pages only."""
    environment, missing = engines["jinja2"].env, {}
    for path in FILES:
        if "django" in path.parts:
            continue
        tree = environment.parse(path.read_text())
        top = {node.name for node in tree.body if isinstance(node, nodes.Macro)}
        top |= {node.target.name for node in tree.body if isinstance(node, nodes.Assign)}
        for node in tree.body:
            if isinstance(node, nodes.FromImport):
                top |= {name if isinstance(name, str) else name[1] for name in node.names}
        for block in tree.find_all(nodes.Block):
            body = nodes.Template(block.body)
            body.set_environment(environment)
            if block.name not in {"title", "body", "main"} and (used := find_undeclared_variables(body) & top):
                missing[f"{path.relative_to(TEMPLATES)}: {block.name}"] = used
    assert missing == {}
