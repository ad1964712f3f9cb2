"""Bundles packed, pushed and pulled, checked on arrival and raced again."""
