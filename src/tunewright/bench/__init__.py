"""Benchmarks: implementations, runs and builds compared."""
