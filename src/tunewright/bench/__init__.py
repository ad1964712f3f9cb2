"""Bench: implementations of operators compared on the calls that programs make; two runs, two builds compared."""
