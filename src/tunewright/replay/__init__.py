"""Comparison of search strategies on recorded spaces, without a device."""
