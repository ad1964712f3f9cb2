"""Figures and tables from trials and decisions."""
