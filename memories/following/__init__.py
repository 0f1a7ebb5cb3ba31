"""Sources that are followed: what is new, changed or gone there is so here."""
