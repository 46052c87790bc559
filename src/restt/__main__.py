"""``restt`` and ``python -m restt``: the command line of :mod:`restt_app`."""

import sys


def main() -> None:
    """Run the command line, or name the extra that brings what it needs."""
    try:
        from restt_app.cli import main
    except ImportError as missing:
        sys.exit(f"restt: {missing}")
    main()


if __name__ == "__main__":
    main()
