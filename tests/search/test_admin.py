"""Saved views in the admin keep a query in its one canonical form."""

import pytest
from django.contrib.auth.models import User

from search.models import SavedView

pytestmark = pytest.mark.django_db
ADD = "/admin/search/savedview/add/"


@pytest.fixture
def form(client):
    owner = User.objects.create_superuser("curator")
    client.force_login(owner)
    return {"name": "Tea", "slug": "tea", "owner": owner.pk, "visibility": "private"}


def test_query_is_kept_in_its_canonical_form(client, form):
    client.post(ADD, {**form, "query": "?page=1&tags=tea&memory_type=note&tags=black&q=oolong"})
    assert SavedView.objects.get().query == "q=oolong&type=note&tag=black&tag=tea"


def test_query_that_cannot_be_read_is_an_error_of_the_form(client, form):
    response = client.post(ADD, {**form, "query": "taggs=tea&from=yesterday"})
    errors = response.context["adminform"].form.errors["query"]
    assert "taggs: is not a parameter" in errors[0]
    assert "from: 'yesterday' is not a date" in errors[1]
    assert not SavedView.objects.exists()
