"""Memberships are written in one place, with an audit event for every change."""

import pytest
from django.contrib.auth.models import User

from access.models import AuditEvent, Membership
from access.services import membership_remove, membership_set
from access.viewer import command_viewer
from memories.models import Project

pytestmark = pytest.mark.django_db
ROLE = Membership.Role


@pytest.fixture
def ada():
    return User.objects.create_user("ada")


@pytest.fixture
def alpha():
    return Project.objects.create(slug="alpha", name="Alpha")


def give(user, project, role):
    return membership_set(user=user, project=project, role=role, viewer=command_viewer())


def test_role_takes_the_place_of_the_one_there_was(ada, alpha):
    first = give(ada, alpha, ROLE.READER)
    second = give(ada, alpha, ROLE.ADMIN)
    assert first.pk == second.pk
    assert Membership.objects.get().role == "admin"
    told = {"user": ada.pk, "project": alpha.pk}
    assert list(AuditEvent.objects.order_by("pk").values_list("verb", "subject_id", "before", "after")) == [
        ("membership_create", first.pk, None, {**told, "role": "reader"}),
        ("membership_change", first.pk, {**told, "role": "reader"}, {**told, "role": "admin"}),
    ]


def test_role_somebody_has_already_is_no_event(ada, alpha):
    give(ada, alpha, ROLE.READER)
    give(ada, alpha, ROLE.READER)
    assert AuditEvent.objects.count() == 1


def test_membership_is_removed_once(ada, alpha):
    membership = give(ada, alpha, ROLE.CURATOR)
    assert membership_remove(membership=membership, viewer=command_viewer())
    assert not membership_remove(membership=membership, viewer=command_viewer())
    assert not Membership.objects.exists()
    event = AuditEvent.objects.get(verb="membership_delete")
    assert (event.before["role"], event.after, event.subject_id) == ("curator", None, membership.pk)
