"""Stores of decisions and trials, and what is built on them."""
