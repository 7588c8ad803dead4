"""`python -m firstfault` is the command, for where no script is on the path."""

from firstfault.cli import main

if __name__ == "__main__":
    main()
