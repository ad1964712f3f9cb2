"""`python -m tunewright`: the command line."""

from tunewright.cli.main import main

main()
