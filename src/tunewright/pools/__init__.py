"""Pools that run trials in this process or in worker processes."""
