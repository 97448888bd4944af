"""Runs the program of one stack: `python -m gmlake predict -m stacks.program NAME`."""

import sys

from stacks.listed import STACKS, all_stacks

all_stacks()
STACKS[sys.argv[1]].program()
