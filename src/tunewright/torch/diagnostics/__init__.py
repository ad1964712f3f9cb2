"""Diagnosis of compiled models: what makes them slow or wrong, and why."""
