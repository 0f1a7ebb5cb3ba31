"""Named points between the steps of a write, so that tests can kill the process at each of them."""


def reached(name: str) -> None:
    """Do nothing. Tests replace this function; callers look it up in this module."""
