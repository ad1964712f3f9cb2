"""The service: one HTTP server in front of a team's store, for hosts that need a token instead of database rights."""
