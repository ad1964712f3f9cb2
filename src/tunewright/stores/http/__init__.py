"""A team's store behind an HTTP service (`tunewright serve`)."""

from tunewright.stores.http.store import HttpStore

__all__ = ["HttpStore"]
