"""`python -m bolide`: the same as the command `bolide`."""

from bolide.cli.main import main

main()
