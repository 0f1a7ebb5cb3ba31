"""Sources that are followed: what is new, changed or gone there changes here too."""
