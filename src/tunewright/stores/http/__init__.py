"""A team's store behind an HTTP service (`tunewright service run`)."""

from tunewright.stores.http.store import HttpStore

__all__ = ["HttpStore"]
