"""Protocols that strategies, backends, pools and stores implement."""
