"""Variables that every template has."""

from django.http import HttpRequest

from web import command_line


def command(request: HttpRequest) -> dict[str, str]:
    """The program that runs the commands of this installation."""
    return {"command": command_line.command("").strip()}
