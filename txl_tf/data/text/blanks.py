"""The characters that are read as white space."""

import numpy as np

SPACES = np.array([code for code in range(0x10000) if chr(code).isspace()], np.int32)
"""The code points of white space."""
_READ_AS_SPACES = "\u200b\u200c\u200d\u200e\u200f\u2581\ufeff\ufffd"
BLANK = np.union1d(SPACES, [ord(character) for character in _READ_AS_SPACES]).astype(np.int32)
"""White space, and what SentencePiece's own normalisation turns into a space."""
