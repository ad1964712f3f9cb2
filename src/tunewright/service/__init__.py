"""HTTP service in front of the store of a team: hosts need a token instead of access to the database."""
