"""Named points between the steps of a write, so that tests can stop the process at each of them."""


def reached(name: str) -> None:
    """Do nothing. Tests replace it; callers look it up in this module."""
