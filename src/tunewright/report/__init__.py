"""Text, plots and HTML from trials and decisions."""
