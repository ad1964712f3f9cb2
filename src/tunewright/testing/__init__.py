"""Contract kits and fakes for whoever writes a plugin."""
