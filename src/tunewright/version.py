"""Version: of this library, by which features come into force."""

__version__ = "0.2.0"
