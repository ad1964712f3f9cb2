"""The contracts between workers."""
