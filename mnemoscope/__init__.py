"""The command `mnemoscope` of an installed package: the verbs of `manage.py`, with the data in a folder of the user.

The packages of the site have common names, such as `web` and `search`. An installation has them in `mnemoscope/site`,
which only this command adds to the path, so that they meet no other package of the same name.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED_SITE = HERE / "site"


def main() -> None:
    """Run a command of the installed site, or of the checkout that this file belongs to."""
    is_installed = INSTALLED_SITE.is_dir()
    if is_installed and not os.environ.get("MNEMOSCOPE_HOME"):
        from platformdirs import user_data_path

        usual = user_data_path("mnemoscope", appauthor=False)
        # The account that runs Postgres for root may not pass through root's own folders.
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        home = "/var/lib/mnemoscope" if is_root and not usual.exists() else str(usual)
        # The second one tells messages that nobody has to type the first.
        os.environ |= {"MNEMOSCOPE_HOME": home, "MNEMOSCOPE_USUAL_HOME": home}
    sys.path.insert(0, str(INSTALLED_SITE if is_installed else HERE.parent))
    from manage import main as manage

    manage()
