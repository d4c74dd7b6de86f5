"""Says on standard error that a long piece of work goes on."""

import contextlib
import sys
import time

from txl_tf.progress import every

SECONDS = 15


@contextlib.contextmanager
def going_on(work):
    """Says what begins, and every 15 seconds how long it has taken."""
    start = time.monotonic()
    print(f"{work} ..", file=sys.stderr, flush=True)
    with every(SECONDS, lambda: print(f"{work}: {time.monotonic() - start:.0f} s so far", file=sys.stderr, flush=True)):
        yield
