"""Backups made while everybody writes, each restored into an empty home and compared with the ledger."""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lab.report import table
from lab.torture.campaign import Campaign, Options, read_memories
from lab.torture.clients import Http, NoAnswerError, RefusedError
from lab.torture.ledger import Entry, Ledger, Version, differences
from lab.torture.site import Site, SiteError, remove_folder

READY_SECONDS = 120.0


@dataclass(frozen=True)
class Restored:
    """One backup, and what came back from it."""

    memories: int
    acknowledged_before: int
    """The memories that were acknowledged before the backup began and not written to until it was complete."""
    acknowledged_meanwhile: int
    """The writes that were acknowledged while it was made."""
    backup_seconds: float
    restore_seconds: float


def run_backups(options: Options, times: int, say: Any) -> int:
    """Back up a site under writes and restore it elsewhere, several times. Return 1 if anything differed."""
    for name in ("home", "restored"):
        remove_folder(options.folder / name)
    campaign = Campaign(options, options.folder / "home", "")
    campaign.site.log = options.folder / "site.log"
    campaign.site.log.unlink(missing_ok=True)
    done: list[Restored] = []
    try:
        campaign.prepare()
        campaign.traffic.open()
        for number in range(1, times + 1):
            # An import writes meanwhile too.
            campaign.importer.is_wanted.set()
            time.sleep(campaign.rng.uniform(1, 4))
            done.append(_back_up_and_restore(campaign))
            say(f"{number:3} {done[-1]}, findings {dict(campaign.findings.counts) or 'none'}")
    except KeyboardInterrupt:
        return 130
    except (SiteError, NoAnswerError, RefusedError) as error:
        campaign.findings.add("the run failed", repr(error))
    finally:
        campaign.end()
    report = {
        "seed": options.seed,
        "restored": [asdict(one) for one in done],
        "findings": dict(campaign.findings.counts),
        "examples": campaign.findings.examples,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    say("\n" + "\n".join(lines_of(report)))
    remove_folder(options.folder / "home")
    return int(bool(campaign.findings.counts))


def _back_up_and_restore(campaign: Campaign) -> Restored:
    ledger, path = campaign.ledger, campaign.options.folder / "torture.backup"
    path.unlink(missing_ok=True)
    before, acknowledged = ledger.standing(), sum(ledger.acknowledged.values())
    begun = time.monotonic()
    campaign.site.output("backup", str(path))
    backup_seconds = time.monotonic() - begun
    after, meanwhile = ledger.standing(), sum(ledger.acknowledged.values()) - acknowledged
    begun_writes = ledger.tokens()
    # The number tells what was changed and changed back, such as a merge that was undone.
    unchanged = {entry: standing[0] for entry, standing in before.items() if after.get(entry) == standing}
    home = campaign.options.folder / "restored"
    remove_folder(home)
    site = Site(home, campaign.options.port + 1, EMBEDDING_MODEL=campaign.options.model)
    site.log = campaign.site.log
    try:
        begun = time.monotonic()
        # It compares the rows and checksums of all tables with those of the backup.
        site.output("restore", str(path))
        restore_seconds = time.monotonic() - begun
        site.start()
        site.wait_until_it_answers()
        replies = _memories_of(site, Http(site.port, campaign.http.headers), ledger)
    finally:
        site.stop()
        remove_folder(home)
        path.unlink(missing_ok=True)
    compare(ledger, replies, unchanged, begun_writes)
    return Restored(len(replies), len(unchanged), meanwhile, round(backup_seconds, 1), round(restore_seconds, 1))


def _memories_of(site: Site, http: Http, ledger: Ledger) -> dict[int, Mapping[str, Any]]:
    """Every memory of the writers by its id, once a search of a restored site has found as many as there are."""
    until = time.monotonic() + READY_SECONDS
    while http.done("GET", "/api/health")["index"]["state"] != "ready":
        if time.monotonic() > until:
            raise SiteError("The index of the restored site is not ready")
        time.sleep(0.2)
    with site.connect() as connection:
        states = [state for (state,) in connection.execute("SELECT state FROM memories_memory")]
        # The others are of the sample.
        ids = [number for (number,) in connection.execute("SELECT id FROM memories_memory WHERE title LIKE 'Token %'")]
    for state in ("active", "deleted"):
        total = http.done("GET", f"/api/search?state={state}&page_size=1")["total"]
        if total != states.count(state):
            ledger.findings.add("search differs after a restore", f"{state}: {total} of {states.count(state)}")
    return read_memories(lambda body: http.done("POST", "/api/memories/batch", body), ids)


def compare(
    ledger: Ledger,
    replies: Mapping[int, Mapping[str, Any]],
    unchanged: Mapping[Entry, Version],
    begun_writes: Collection[str],
) -> None:
    """Hold restored memories against the ledger.

    `unchanged` are those that were acknowledged before the backup, and not written to while it was made: they have to
    be there as they were. `begun_writes` are the tokens of all writes that had begun when it was complete: every other
    memory has to be one of these, wholly.
    """
    by_token = {reply["title"].removeprefix("Token "): reply for reply in replies.values()}
    for entry, version in unchanged.items():
        reply = by_token.get(version.token)
        if reply is None:
            ledger.findings.add("not in the backup", f"#{entry.id} {version} by {entry.origin}")
        elif different := differences(entry, version, reply):
            ledger.findings.add("not as written in the backup", f"#{entry.id} {version}: {different}")
    for token, reply in by_token.items():
        written = ledger.entry_of(token)
        if written is None or token not in begun_writes:
            ledger.findings.add("in the backup and not written before its end", f"#{reply['id']} {token}")
        elif written not in unchanged and not _is_whole(written, token, reply):
            ledger.findings.add("half-written in the backup", f"#{reply['id']} {token} by {written.origin}")
    if len(by_token) != len(replies):
        ledger.findings.add("doubled in the backup", f"{len(replies):,} memories of {len(by_token):,} writes")


def _is_whole(entry: Entry, token: str, reply: Mapping[str, Any]) -> bool:
    states = [Version(token, is_deleted, is_merged) for is_deleted in (False, True) for is_merged in (False, True)]
    return any(not differences(entry, version, reply) for version in states)


def lines_of(report: Mapping[str, Any]) -> list[str]:
    """The report as Markdown."""
    headings = ["", "memories", "acknowledged before", "writes meanwhile", "backup, s", "restore, s"]
    lines = table(headings, [[str(number), *row.values()] for number, row in enumerate(report["restored"], 1)])
    found = ", ".join(f"{number} {what}" for what, number in report["findings"].items()) or "none"
    return [*lines, "", f"**Wrong: {found}.**", *(f"- {example}" for example in report["examples"])]
