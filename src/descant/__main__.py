"""`python -m descant` is the command `descant`, also where that is not on the path."""

from descant.cli import main

if __name__ == "__main__":
    main()
