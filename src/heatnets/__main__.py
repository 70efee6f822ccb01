"""`python -m heatnets`."""

from heatnets.cli import main

main()
