"""Checks that a key has the fields it needs, and no others."""
