"""An interface for agents: an MCP server, a guide to the command line, and proposals from other programs."""
