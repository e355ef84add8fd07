"""`python -m kopitiam` is `kopi`."""

from kopitiam.cli.app import main

if __name__ == "__main__":
    main()
