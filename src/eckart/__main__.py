"""``python -m eckart``: the command line."""

from eckart.cli.main import run

if __name__ == "__main__":
    run()
