"""Claims of a provider about a person, and the roles that they stand for."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from access.models import Membership
from access.services import membership_remove, membership_set
from access.viewer import SCOPES, Viewer
from memories.models import Project

Role = Membership.Role


def merge_claims(userinfo: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    """The claims of a signed identity, and further ones that the provider answers.

    An address is verified if a source says so of this very address: the other one may have another address.
    """
    merged = {**userinfo, **identity}
    address = merged.get("email")
    sources = (source for source in (userinfo, identity) if source.get("email") == address)
    return {**merged, "email_verified": any(_is_true(source.get("email_verified")) for source in sources)}


def _is_true(value: object) -> bool:
    # Some providers write it as text.
    return value is True or value == "true"


@transaction.atomic
def roles_from_claims(user: User, claims: dict[str, Any]) -> None:
    """Give the highest role that a claim stands for in each project that the rules name, and end others there."""
    rules = settings.OIDC_ROLES
    if not rules:
        return
    ranks = {role.value: rank for rank, role in enumerate(Role)}
    named = {project for *_, project in rules}
    projects = Project.objects.all() if "*" in named else Project.objects.filter(slug__in=named)
    held = {membership.project_id: membership for membership in Membership.objects.filter(user=user)}
    # It decides for every project, like whoever wrote the rules.
    viewer = Viewer(None, frozenset(SCOPES), None, user_id=user.pk)
    for project in projects:
        roles = [
            role
            for claim, value, role, slug in rules
            if slug in ("*", project.slug) and value in _values(claims, claim)
        ]
        if roles:
            role = Role(max(roles, key=ranks.__getitem__))
            membership_set(user=user, project=project, role=role, viewer=viewer, note="by claims")
        elif project.pk in held:
            membership_remove(membership=held[project.pk], viewer=viewer)


def _values(claims: dict[str, Any], claim: str) -> list[str]:
    """The values of a claim by which rules give roles. Anybody may claim an address that is not verified."""
    if claim not in claims or (claim == "email" and claims.get("email_verified") is not True):
        return []
    value = claims[claim]
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]
