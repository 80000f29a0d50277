"""`python -m recon.cli` is `recon`."""

from recon.cli import main

if __name__ == "__main__":
    main()
