"""`python -m evalharness`."""

from evalharness.cli.main import entry

if __name__ == "__main__":
    entry()
