"""Clocks, checks and attempts."""
