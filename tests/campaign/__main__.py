"""Not a test: `make campaign`. Runs every case, prints a line for each, and fails if one does.

PYTHONPATH=.:tests python -m campaign --only=import --jobs=2
"""

import argparse
import concurrent.futures
import itertools
import multiprocessing
import pathlib
import re
import sys
import tempfile
import time

from campaign import serving, world
from campaign.attempts import attempt, set_up_process
from campaign.cases import all_cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that a case's line must match")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    args = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="world") as folder:
        root = pathlib.Path(folder)
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # which gives its memory back
            pool.apply(world.build, [root, list(world.PARTS)])
        cases = [case for case in all_cases(root) if re.search(args.only, f"{case.command}: {case.title}")]
        print(f"{len(cases)} cases; the world took {time.perf_counter() - start:.0f} s", flush=True)
        count = failed = 0
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(args.jobs, context, set_up_process) as pool:
            results = pool.map(attempt, cases, itertools.repeat(root), chunksize=4)
            servers = pool.map(serving.cases, serving.EXPORTS, itertools.repeat(root), itertools.repeat(args.only))
            tried = ((f"{case.command}: {case.title}", *result) for case, result in zip(cases, results, strict=True))
            for line, wrong, seconds in itertools.chain(tried, itertools.chain.from_iterable(servers)):
                count, failed = count + 1, failed + bool(wrong)
                print(f"{seconds:6.1f} s  {line}: {f'FAILED: {wrong}' if wrong else 'ok'}", flush=True)
    print(f"{count} cases, {failed} failed, {time.perf_counter() - start:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
