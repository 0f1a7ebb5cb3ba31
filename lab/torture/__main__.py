"""`python -m lab.torture`: kill a site while everybody writes, restore its backups, and look for leaks of projects.

The commands start a site of their own in a folder of their own, and exit with 1 if anything is wrong.
"""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from lab.torture.backups import run_backups
from lab.torture.campaign import Options, run_campaign
from lab.torture.isolation_site import run_isolation
from lab.torture.site import ROOT


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.torture", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    campaign = commands.add_parser("campaign", help="kill processes, fill the disk and more, while everybody writes")
    add = campaign.add_argument
    add("--cycles", type=int, default=1_000_000, help="end after this many faults (default: after --minutes)")
    add("--minutes", type=float, default=5.0, help="end after this time (5)")
    add("--fault", action="append", default=[], metavar="WORDS", help="only faults with these words; can be repeated")
    add("--disk", type=int, default=1_500, metavar="MB", help="the size of the disk that is filled (1500)")
    add(
        "--database",
        default="",
        metavar="URL",
        help="use this database, made for the campaign, and spread it if it is on the coordinator of a Citus cluster",
    )
    isolation = commands.add_parser("isolation", help="probe what partial viewers can learn of others' projects")
    isolation.add_argument("--probes", type=int, default=1_000, help="reads and writes of the viewers (1000)")
    backups = commands.add_parser("backups", help="back up while everybody writes, restore and compare")
    backups.add_argument("--times", type=int, default=3, help="the number of backups (3)")
    for command in (campaign, backups):
        add = command.add_argument
        add("--model", default="hashed-words", help="EMBEDDING_MODEL of the site (hashed-words, which loads at once)")
    for command in (campaign, isolation, backups):
        add = command.add_argument
        add("--seed", type=int, default=1, help="the same seed makes the same faults, writes and questions (1)")
        add("--port", type=int, default=8250, help="the port of the site (8250)")
        add("--folder", type=Path, default=ROOT / "var" / "torture", help="everything is below it (var/torture)")
        add("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parsed = parser.parse_args()
    if min(getattr(parsed, name, 1) for name in ("cycles", "minutes", "probes", "times")) <= 0:
        parser.error("--cycles, --minutes, --probes and --times take positive numbers")
    parsed.folder = parsed.folder.resolve()
    return parsed


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments.folder.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, flush=True)

    if arguments.command == "isolation":
        given = (arguments.folder, arguments.port, arguments.probes, arguments.seed, arguments.json)
        return run_isolation(*given, say)
    common = Options(
        seed=arguments.seed,
        folder=arguments.folder,
        port=arguments.port,
        model=arguments.model,
        json=arguments.json,
    )
    if arguments.command == "backups":
        return run_backups(common, arguments.times, say)
    options = replace(
        common,
        cycles=arguments.cycles,
        seconds=arguments.minutes * 60,
        faults=tuple(arguments.fault),
        disk_megabytes=arguments.disk,
        database=arguments.database,
    )
    return run_campaign(options, say)


if __name__ == "__main__":
    sys.exit(main())
