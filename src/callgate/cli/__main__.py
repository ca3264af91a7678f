"""Run the command line: `python -m callgate.cli`."""

from callgate.cli import main

if __name__ == "__main__":
    main()
