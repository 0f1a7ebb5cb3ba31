"""Addresses of pages that are no more lead to where the same is shown."""

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "/explore/calendar/?q=tea&year=2024",
            "/explore/?q=tea&from=2024-01-01&to=2024-12-31",
            id="calendar of a year",
        ),
        pytest.param("/explore/calendar/?tag=tea&year=never", "/explore/?tag=tea", id="calendar of no year"),
        pytest.param(
            "/graph/path/?from=part:wheel&to=Osk&steps=3",
            "/graph/entity/part:wheel/?to=Osk&steps=3#path",
            id="path between two entities",
        ),
        pytest.param("/graph/path/", "/graph/", id="path without ends"),
        pytest.param("/graph/path/?from=a%0Ab", "/graph/", id="path from a name of two lines"),
        pytest.param("/graph/path/?from=..", "/graph/", id="path from dots"),
        pytest.param(f"/explore/calendar/?year={'9' * 4_400}", "/explore/", id="calendar of a year of many digits"),
        pytest.param("/explore/calendar/?year=0", "/explore/", id="calendar of the year 0"),
    ],
)
def test_saved_address_leads_on(old, new):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    response = client.get(old)
    assert (response.status_code, response["Location"]) == (302, new)
