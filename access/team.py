"""Whether others can reach this site and sign in: each setting as it is now, and the lines that are missing."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from access.services import KeyRights
from web.serving import Reach, is_loopback, reach_of

EXAMPLE = "https://memories.example"
_YEAR = 31_536_000
_SITE = re.compile(r"https://([\w-]+\.)+[\w-]+(:\d{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SetupCheck:
    """A condition, whether it holds, and the settings to write if it does not. `is_needed`: nothing works without."""

    holds: bool
    text: str
    settings: tuple[str, ...] = ()
    is_needed: bool = True

    @property
    def state(self) -> str:
        return "ok" if self.holds else "missing" if self.is_needed else "advice"


@dataclass(frozen=True, slots=True)
class TeamStep:
    key: str
    title: str
    checks: tuple[SetupCheck, ...]

    @property
    def is_done(self) -> bool:
        return all(check.holds or not check.is_needed for check in self.checks)


@dataclass(frozen=True, slots=True)
class SiteState:
    """The settings of the site and its accounts, and the way by which a request has come."""

    public_url: str
    reached: str
    is_secure: bool
    client: str
    """The address that the request came from, as far as the site knows."""
    has_secret: bool
    behind_proxy: bool
    proxies: str
    secure_cookies: bool
    hsts_seconds: int
    debug: bool
    admins_with_password: int
    people: int
    invitations: int
    oidc_issuer: str
    oidc_domains: tuple[str, ...]
    gives_roles: bool


def read_state(request: HttpRequest, rights: KeyRights) -> SiteState:
    admins = User.objects.filter(is_superuser=True, is_active=True)
    return SiteState(
        public_url=settings.PUBLIC_URL,
        reached=f"{request.scheme}://{request.get_host()}",
        is_secure=request.is_secure(),
        client=request.META.get("REMOTE_ADDR", ""),
        has_secret=bool(os.environ.get("SECRET_KEY")),
        behind_proxy=settings.BEHIND_TLS_PROXY,
        proxies=os.environ.get("FORWARDED_ALLOW_IPS", ""),
        secure_cookies=settings.SECURE_COOKIES,
        hsts_seconds=settings.SECURE_HSTS_SECONDS,
        debug=settings.DEBUG,
        admins_with_password=sum(admin.has_usable_password() for admin in admins),
        people=User.objects.filter(is_active=True).count(),
        invitations=rights.invitations().count(),
        oidc_issuer=settings.OIDC_ISSUER,
        oidc_domains=tuple(settings.OIDC_ALLOWED_DOMAINS),
        gives_roles=bool(settings.OIDC_ROLES),
    )


def team_steps(state: SiteState, wanted: str = "") -> tuple[TeamStep, ...]:
    """The steps in order. `wanted` is the address that the site shall have, if not that of the settings."""
    address = wanted or (state.public_url if state.public_url.startswith("https://") else "") or EXAMPLE
    return (
        TeamStep("address", "An address that others can open", tuple(_address(state, address))),
        TeamStep("https", "HTTPS, by a proxy in front", tuple(_https(state))),
        TeamStep("sign-in", "A way to sign in", tuple(_sign_in(state, address))),
    )


def missing_lines(steps: tuple[TeamStep, ...]) -> list[str]:
    """The settings to write, each once."""
    lines = (line for step in steps for check in step.checks if not check.holds for line in check.settings)
    return list(dict.fromkeys(lines))


def wanted_site(text: str) -> str:
    """An address that somebody wants for the site, without a slash at its end. Raises ValueError."""
    address = text.strip().rstrip("/")
    if not _SITE.fullmatch(address) or reach_of(address) is not Reach.ANYWHERE:
        raise ValueError(f"{text!r} is not an address that others can open: write one such as {EXAMPLE}.")
    return address


def _address(state: SiteState, address: str) -> Iterator[SetupCheck]:
    lines = (f"PUBLIC_URL={address}",)
    if not state.public_url:
        now = f"PUBLIC_URL is not set: links have the address by which you came, {state.reached}."
        yield SetupCheck(False, now, lines)
    else:
        reach = reach_of(state.public_url)
        if reach is Reach.ANYWHERE:
            yield SetupCheck(True, f"PUBLIC_URL is {state.public_url}, as in links, invitations and texts for agents.")
        else:
            yield SetupCheck(False, f"PUBLIC_URL is {state.public_url}: {reach.value}.", lines, reach is Reach.MACHINE)
        is_same = urlsplit(state.public_url).netloc == urlsplit(state.reached).netloc
        yield SetupCheck(
            is_same,
            f"You came by {state.reached}."
            + ("" if is_same else " Open the address of PUBLIC_URL once: if this page shows there, it works."),
            is_needed=False,
        )
    yield SetupCheck(
        state.has_secret,
        "SECRET_KEY is set."
        if state.has_secret
        else "SECRET_KEY is not set: a key in MNEMOSCOPE_HOME is used, which a"
        " server that listens on other addresses than this machine's does not accept.",
        ("SECRET_KEY=<a long random text, such as openssl rand -base64 48 gives>",),
        is_needed=False,
    )
    if state.debug:
        yield SetupCheck(False, "DEBUG is on: errors show settings and code to everybody.", ("DEBUG=0",))


def _https(state: SiteState) -> Iterator[SetupCheck]:
    yield SetupCheck(
        state.behind_proxy,
        "BEHIND_TLS_PROXY is on: the proxy says by X-Forwarded-Proto whether a request came by HTTPS."
        if state.behind_proxy
        else "BEHIND_TLS_PROXY is off: what a proxy says of HTTPS is ignored.",
        ("BEHIND_TLS_PROXY=1",),
    )
    yield SetupCheck(
        state.is_secure,
        "This request came by HTTPS."
        if state.is_secure
        else f"This request came without HTTPS, by {state.reached}."
        + (" Either you went past the proxy, or it does not send X-Forwarded-Proto." if state.behind_proxy else ""),
    )
    yield SetupCheck(
        state.secure_cookies,
        f"SECURE_COOKIES is {'on' if state.secure_cookies else 'off: cookies are sent without HTTPS too'}.",
        ("SECURE_COOKIES=1",) if state.behind_proxy else (),
    )
    if state.behind_proxy and is_loopback(state.client):
        yield SetupCheck(
            False,
            f"Requests seem to come from {state.client}. Unless you sit at the server, the proxy does not send"
            " X-Forwarded-For: wrong passwords of one person then lock out all.",
            is_needed=False,
        )
    yield SetupCheck(
        True,
        f"FORWARDED_ALLOW_IPS is {state.proxies}: what these addresses say of clients is trusted."
        if state.proxies
        else "FORWARDED_ALLOW_IPS is not set: a proxy on this machine alone is trusted. For one on another machine,"
        " write its address, and let no other machine reach the port.",
    )
    yield SetupCheck(
        state.hsts_seconds > 0,
        f"HSTS_SECONDS is {state.hsts_seconds:,}: browsers use HTTPS only."
        if state.hsts_seconds
        else "HSTS_SECONDS is 0: browsers may try without HTTPS. Set it once HTTPS works.",
        (f"HSTS_SECONDS={_YEAR}",),
        is_needed=False,
    )


def _sign_in(state: SiteState, address: str) -> Iterator[SetupCheck]:
    count = state.admins_with_password
    yield SetupCheck(
        bool(count),
        f"{count} {'person who administers' if count == 1 else 'people who administer'} everything can sign in with a"
        " password."
        if count
        else "Nobody who administers everything has a password: links of the terminal are the only way in.",
    )
    if state.oidc_issuer:
        yield SetupCheck(True, f"OIDC_ISSUER is {state.oidc_issuer}: people sign in with their accounts there.")
        domains = ", ".join(state.oidc_domains)
        yield SetupCheck(
            bool(domains),
            f"OIDC_ALLOWED_DOMAINS lets in {domains}."
            if domains
            else "OIDC_ALLOWED_DOMAINS is not set: everybody whom the provider knows gets an account, without a role.",
            (f"OIDC_ALLOWED_DOMAINS={'.'.join((urlsplit(address).hostname or '').split('.')[-2:])}",),
            is_needed=False,
        )
        yield SetupCheck(
            state.gives_roles,
            "OIDC_ROLES gives roles by what the provider says."
            if state.gives_roles
            else "OIDC_ROLES is not set: an admin gives each person a role on the page of people.",
            is_needed=False,
        )
    others = state.people > 1 or state.invitations > 0
    yield SetupCheck(
        others,
        f"{state.people:,} {'account' if state.people == 1 else 'accounts'}, and {state.invitations:,} open"
        f" {'invitation' if state.invitations == 1 else 'invitations'}."
        + ("" if others else " Invite somebody once the address works."),
        is_needed=False,
    )
