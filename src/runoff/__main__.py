"""`python -m runoff` is `runoff`."""

from runoff.cli import main

if __name__ == "__main__":
    main()
