"""`python -m tfsac`."""

from tfsac.cli import main

if __name__ == "__main__":
    main()
