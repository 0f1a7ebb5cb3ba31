"""The sign-in page: a one-time link, or a user name and a password."""

from typing import Any

from django.contrib.auth import login
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from access.tokens import sign_in_token_redeem


class SignIn(LoginView):
    template_name = "access/sign_in.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        token = request.GET.get("token")
        # Whoever only looks at a link, as previews and link checkers do with HEAD, must not use it up.
        if token is None or request.method == "HEAD":
            return super().get(request, *args, **kwargs)
        if user := sign_in_token_redeem(token):
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
            return HttpResponseRedirect(self.get_success_url())
        # Somebody reloads the link that signed him in a minute ago: it gives him nothing that he has not.
        if request.user.is_authenticated:
            return HttpResponseRedirect(self.get_success_url())
        return self.render_to_response(self.get_context_data(link_is_spent=True), status=403)
