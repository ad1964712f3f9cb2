"""Reports about compiled models as values, text and HTML pages."""
