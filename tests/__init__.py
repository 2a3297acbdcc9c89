import os
import sys

# Each file is compiled once, and not by every process that a test starts.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
