"""Strategies compared on recordings, without a device."""
