"""The command `python -m serving`, from any directory."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from serving.__main__ import main

if __name__ == "__main__":
    main()
