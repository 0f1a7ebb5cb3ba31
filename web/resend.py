"""Forms that could not be taken are offered to be sent again, so that nothing typed is lost with a session."""

from collections.abc import Callable
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import render, resolve_url


def refuse_forged_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The view of Django's check against forged requests: a page of this site that became old may send again."""
    if urlsplit(request.headers.get("Origin", "")).netloc == request.get_host():
        return offer_to_send_again(request)
    why = "A page of another site sent this form, or the browser has sent neither cookies nor where it comes from."
    return render(request, "403.html", {"exception": why}, status=403)


def keep_what_was_sent(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Offer to send a form again that needs somebody to sign in first: a redirect would lose what was typed."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if request.method != "POST" or response.status_code != 302 or not request.POST.keys() - {"csrfmiddlewaretoken"}:
            return response
        address = urlsplit(response.headers["Location"])
        asks_to_sign_in = address.path in (resolve_url(settings.LOGIN_URL), resolve_url("admin:login"))
        # A form that signs out leads there too, but not back.
        if not asks_to_sign_in or QueryDict(address.query).get("next") != request.get_full_path():
            return response
        return offer_to_send_again(request)

    return middleware


def offer_to_send_again(request: HttpRequest) -> HttpResponse:
    """A page with all that a form sent, less passwords and files, and a button that sends it."""
    pairs = [(name, value) for name, values in request.POST.lists() for value in values]
    fields = [(name, value) for name, value in pairs if name != "csrfmiddlewaretoken" and "password" not in name]
    context = {
        "fields": fields,
        "files": [file.name for name in request.FILES for file in request.FILES.getlist(name)],
        "has_password": any("password" in name for name, _ in pairs),
        "sign_in": "" if request.user.is_authenticated else resolve_url(settings.LOGIN_URL),
    }
    is_htmx = request.headers.get("HX-Request") == "true"
    # htmx shows nothing of a refusal, and has asked for a part of the page.
    response = render(request, "resend.html", context, status=200 if is_htmx else 403)
    response["Cache-Control"] = "no-store"
    if is_htmx:
        response["HX-Retarget"], response["HX-Reswap"] = "body", "innerHTML"
    return response
