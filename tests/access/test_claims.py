"""Roles by the claims of a provider."""

import pytest
from django.contrib.auth.models import User

from access.models import Membership
from access.services import merge_claims, roles_from_claims
from memories.models import Project

ANN = {"email": "ann@example.org"}


@pytest.mark.parametrize(
    ("userinfo", "identity", "has_role"),
    [
        pytest.param({}, {**ANN, "email_verified": True}, True, id="verified"),
        pytest.param({}, {**ANN, "email_verified": "true"}, True, id="verified, as text"),
        pytest.param({**ANN, "email_verified": True}, {}, True, id="verified by the provider's answer"),
        pytest.param({**ANN, "email_verified": True}, ANN, True, id="the same address, verified by the answer"),
        pytest.param({}, ANN, False, id="nothing is said"),
        pytest.param({}, {**ANN, "email_verified": False}, False, id="not verified"),
        pytest.param({}, {**ANN, "email_verified": "false"}, False, id="not verified, as text"),
        pytest.param({}, {**ANN, "email_verified": "yes"}, False, id="another text"),
        pytest.param({}, {**ANN, "email_verified": 1}, False, id="a number"),
        pytest.param({"email": "eve@example.org", "email_verified": True}, ANN, False, id="another one is"),
        pytest.param({"email_verified": True}, ANN, False, id="no address is verified"),
        pytest.param({}, {"email": [ANN["email"]], "email_verified": None}, False, id="a list"),
        pytest.param({}, {"email_verified": True}, False, id="no address"),
    ],
)
@pytest.mark.django_db
def test_address_gives_a_role_only_if_it_is_verified(settings, userinfo, identity, has_role):
    settings.OIDC_ROLES = [("email", "ann@example.org", "curator", "tea"), ("groups", "all", "reader", "boat")]
    user = User.objects.create_user("ann")
    tea, boat = (Project.objects.create(slug=slug) for slug in ("tea", "boat"))
    Membership.objects.create(user=user, project=tea, role="reader")
    roles_from_claims(user, merge_claims(userinfo, {**identity, "groups": ["all"]}))
    assert Membership.objects.filter(user=user, project=tea).exists() == has_role
    # Other claims are the provider's own.
    assert Membership.objects.filter(user=user, project=boat).exists()


@pytest.mark.django_db
def test_claim_that_is_not_there_is_no_value(settings):
    settings.OIDC_ROLES = [("team", "None", "admin", "tea")]
    user = User.objects.create_user("ann")
    Project.objects.create(slug="tea")
    roles_from_claims(user, merge_claims({}, {}))
    assert not Membership.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("groups", [["writers", "wardens", "all"], ["all", "wardens", "writers"]])
def test_the_highest_of_several_roles_is_given(settings, groups):
    settings.OIDC_ROLES = [("groups", "writers", "writer", "*"), ("groups", "wardens", "curator", "tea")]
    settings.OIDC_ROLES += [("groups", "all", "reader", "*")]
    user = User.objects.create_user("ann")
    for slug in ("tea", "boat"):
        Project.objects.create(slug=slug)
    roles_from_claims(user, {"groups": groups})
    assert dict(Membership.objects.values_list("project__slug", "role")) == {"tea": "curator", "boat": "writer"}
