"""The probes of isolation notice what leaks; `python -m torture isolation` asks a running site."""

import json

from torture.isolation import HIDDEN_CURATOR, OWNER, Answer, Leaks, record, replay


class LeakyWorld:
    """Answers everybody with how much there is, and with the newest name."""

    def __init__(self):
        self.names = []

    def ask(self, question):
        if question.who in {OWNER, HIDDEN_CURATOR} and question.template == "store":
            self.names.append(question.body["title"])
        return Answer(200, json.dumps({"id": 7, "total": len(self.names), "newest": self.names[-1:]}))

    def settle(self, step):
        pass


def test_probes_notice_counts_names_and_floods():
    turns = record(LeakyWorld(), 24, seed=1)
    leaks: Leaks = replay(LeakyWorld(), turns, seed=1)
    kinds = {name.partition(":")[0] for name in leaks.kinds}
    assert {"canary", "depends on hidden data", "changes with hidden writes"} <= kinds
    assert sum(count for name, count in leaks.kinds.items() if name.startswith("depends")) == 24
