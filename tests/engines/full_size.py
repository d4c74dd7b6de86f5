"""Many rows in one process, and on Ray, Spark and Beam; what starts and batches cost.

    .venv-engines/bin/python tests/engines/full_size.py --model_dir=M --texts=FILE --out=FOLDER [--count=100000]
    .. --engines=one,ray,spark,beam --workers=1,2 --no-kill --count=20000

FILE has a text in each line; they are repeated up to --count. Each line on stdout is JSON: an engine, its workers, the
seconds from the start of its program to its end, for one row and for all, and rows a second in what is between. What an
engine writes must equal one process's. On Ray and Spark a worker is killed in the middle. Beam needs .venv-beam.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path += [str(pathlib.Path(__file__).parents[1] / "programs")]

import engine_runs
import pyarrow
from pyarrow import parquet

import txl_tf

BATCHES = (1, 16, 64, 256, 1024)
WRITTEN = {"ray": "*.parquet", "spark": "_temporary/**/part-*.parquet"}
"""The files that an engine writes before it ends."""
BEAM = pathlib.Path(__file__).parents[2] / ".venv-beam" / "bin" / "python"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--texts", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--engines", default="one,ray,spark")
    parser.add_argument("--kill", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workers", default="2")
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    table = rows_of(args.texts.read_text().splitlines(), args.count)
    write(table, args.out / "in")
    write(table[:1], args.out / "in1")
    for engine in args.engines.split(","):
        if engine == "one":
            one_process(args, table)
            continue
        for workers in map(int, args.workers.split(",")):
            kill = args.kill and engine in WRITTEN
            start = run(args, engine, workers, args.out / "in1", False)
            took = run(args, engine, workers, args.out / "in", kill)
            each = {"rows_per_s": args.count / (took - start)}
            say(engine=engine, workers=workers, rows=args.count, one_row_s=start, all_s=took, killed=kill, **each)


def rows_of(texts, count):
    texts = [text for text in texts if text.strip()]
    repeated = (texts * (count // len(texts) + 1))[:count]
    return pyarrow.table({"id": list(range(count)), "text": repeated})


def write(table, folder):
    """Forty files."""
    folder.mkdir(exist_ok=True)
    size = -(-len(table) // 40)
    for i, start in enumerate(range(0, len(table), size)):
        parquet.write_table(table.slice(start, size), folder / f"{i:02d}.parquet")


def say(**facts):
    print(json.dumps(facts), flush=True)


def seconds(function, *arguments):
    start = time.monotonic()
    function(*arguments)
    return time.monotonic() - start


def one_process(args, table):
    predictor, start = txl_tf.BatchPredictor(args.model_dir), time.monotonic()
    predictor(table[:1])
    loaded = time.monotonic()
    found = [predictor(table.slice(begin, 1024)) for begin in range(0, len(table), 1024)]
    took = time.monotonic() - loaded
    say(engine="one process", rows=len(table), one_row_s=loaded - start, all_s=took, rows_per_s=len(table) / took)
    parquet.write_table(pyarrow.concat_tables(found), args.out / "wanted.parquet")
    for size in BATCHES:
        times = [seconds(predictor, table.slice(i * size, size)) for i in range(12)]
        say(batch=size, milliseconds=1000 * statistics.median(times[4:]))  # the first ones trace


def run(args, engine, workers, source, kill):
    """The seconds of an engine's program, whose rows are compared with those of one process."""
    target = args.out / f"{engine}-{workers}-{source.name}{'-killed' if kill else ''}"

    def working():
        return getattr(engine_runs, f"{engine}_worker")() if len(list(target.glob(WRITTEN[engine]))) >= 6 else None

    options = {"timeout": 1800, "kill": working if kill else None}
    log, start = target.with_suffix(".log"), time.monotonic()
    if engine == "ray":
        with engine_runs.ray_cluster(2) as env:
            start = time.monotonic()
            command = engine_runs.python("ray_predict.py", args.model_dir, source, target, workers)
            status = engine_runs.run(command, env, log, **options)
    elif engine == "spark":
        command, env = engine_runs.spark(workers, args.model_dir, source, target)
        status = engine_runs.run(command, env, log, **options)
    else:
        command = engine_runs.beam(workers, args.model_dir, source, target, BEAM)
        status = engine_runs.run(command, engine_runs.environment(), log, **options)
    took = time.monotonic() - start
    assert status == 0, log.read_text()[-2000:]
    wanted = parquet.read_table(args.out / "wanted.parquet")
    engine_runs.check(target.glob("*.parquet"), wanted[:1] if source.name == "in1" else wanted)
    return took


if __name__ == "__main__":
    main()
