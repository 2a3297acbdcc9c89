import os
import sys

# `python -m` puts the working directory first: its modules come last, after Python's own.
if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    sys.path.append(sys.path.pop(0))

from ablate.cli.app import main

main()
