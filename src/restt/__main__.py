"""``python -m restt`` is the command line."""

from restt.cli import main

if __name__ == "__main__":
    main()
