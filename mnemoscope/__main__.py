"""`python -m mnemoscope`: the same as the command `mnemoscope`."""

from mnemoscope import main

main()
