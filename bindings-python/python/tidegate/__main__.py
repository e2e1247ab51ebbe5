"""`python -m tidegate` is the command `tidegate`."""

from ._command import main

if __name__ == "__main__":
    main()
