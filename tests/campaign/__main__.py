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
from campaign.attempts import set_up_process
from campaign.cases import all_cases, attempt_number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that a case's line must match")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--after", type=pathlib.Path, help="the output of an earlier run: leave out what was ok there")
    args = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="world") as folder:
        root = pathlib.Path(folder)
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # which gives its memory back
            pool.apply(world.build, [root, list(world.PARTS)])
        lines = {i: f"{case.command}: {case.title}" for i, case in enumerate(all_cases(root))}
        before = set(re.findall(r"^ *[\d.]+ s  (.*): ok$", args.after.read_text() if args.after else "", re.MULTILINE))
        lines = {i: line for i, line in lines.items() if re.search(args.only, line) and line not in before}
        print(f"{len(lines)} cases; the world took {time.perf_counter() - start:.0f} s", flush=True)
        count = failed = 0
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(args.jobs, context, set_up_process) as pool:
            results = pool.map(attempt_number, lines, itertools.repeat(root), chunksize=4)
            servers = pool.map(serving.cases, serving.EXPORTS, itertools.repeat(root), itertools.repeat(args.only))
            tried = ((line, *result) for line, result in zip(lines.values(), results, strict=True))
            for line, wrong, seconds in itertools.chain(tried, itertools.chain.from_iterable(servers)):
                count, failed = count + 1, failed + bool(wrong)
                print(f"{seconds:6.1f} s  {line}: {f'FAILED: {wrong}' if wrong else 'ok'}", flush=True)
    print(f"{count} cases, {failed} failed, {time.perf_counter() - start:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
