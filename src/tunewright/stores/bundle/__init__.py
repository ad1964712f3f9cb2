"""Bundles: tuned decisions as one signed file that production trusts and cannot change."""

from tunewright.stores.bundle.store import BundleStore, verify_bundle

__all__ = ["BundleStore", "verify_bundle"]
