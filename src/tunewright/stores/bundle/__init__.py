"""Bundles: what was tuned, as one signed file that production trusts and cannot change."""

from tunewright.stores.bundle.store import BundleStore, verified

__all__ = ["BundleStore", "verified"]
