"""``python -m restt`` is the command line."""

from restt.cli import main

main()
