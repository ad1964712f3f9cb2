"""Contract kits, fakes and servers for authors of plugins."""
