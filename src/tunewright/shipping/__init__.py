"""Bundles packed, checked on arrival and raced again."""
