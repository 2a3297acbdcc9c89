import os
import sys

# `python -m` puts the working directory first, where Hydra would import all that is called hydra_plugins.
if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]

from ablate.cli.app import main

main()
