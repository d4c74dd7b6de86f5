"""A first run on a TPU: is what it computes right, does it go on after a kill, and how long does a step take?

    .venv/bin/python tpu/first_run.py --dir=first_run    # on the TPU VM, in the folder txl_tf, after tpu/setup.sh
    python tpu/first_run.py --dir=first_run --cpu        # anywhere: tiny sizes on a CPU, to try this program

It uses all cores of this host, for some minutes. FOLDER/page.md says what it found: please send us this page, also if
all is well. The exit status is 1 if anything differs from what it must be.
"""

import argparse
import datetime
import itertools
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "references")]

STEPS, HALF = 20, 10
RUN = {"train_steps": STEPS, "save_steps": HALF, "steps_per_loop": 5, "log_steps": 5, "eval_steps": 0, "seed": 1}
EVALUATED, LONGER_LOOPS = {"eval_steps": HALF}, {"steps_per_loop": HALF, "log_steps": HALF}
SIZES = {"preset": "enwik8_base", "batch_size": 16, "eval_tokens": 50_000}
TINY = {"preset": "enwik8_base", "batch_size": 4, "tgt_len": 16, "mem_len": 16, "n_layer": 1, "d_model": 16}
TINY |= {"d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 16, "eval_jit_compile": False}
TINY |= {"eval_tokens": 2_000, "eval_tgt_len": 16, "eval_mem_len": 16}
PLAIN = 0.02
"""Largest relative difference of losses from those of the plain formulas: some steps of rounding to bfloat16."""


class Check(typing.NamedTuple):
    """Something that was found, and the most that it may be; NaN: it failed, for the `reason`."""

    what: str
    found: float
    most: float
    reason: str = ""

    @property
    def is_right(self):
        """Whether it is not more; NaN is."""
        return self.found <= self.most

    def row(self):
        """Its row in the page's table."""
        differs = "" if self.is_right else f"**differs** {self.reason}"
        return f"| {self.what} | {self.found:.1e} | {self.most:.1e} | {differs} |"


def main(start=subprocess.Popen):
    """Tries everything. start: starts a process, as subprocess.Popen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=pathlib.Path, default="first_run", help="a new folder for the runs and the page")
    parser.add_argument("--cpu", action="store_true", help="tiny sizes on a CPU")
    parser.add_argument("--cases", default="", metavar="REGEX", help="only operations whose case matches")
    args = parser.parse_args()
    if args.dir.exists():
        sys.exit(f"error: --dir={args.dir} is there already: name a new folder")
    sizes = TINY if args.cpu else SIZES
    args.dir.mkdir(parents=True)
    # In processes of their own, before this one has the TPU: only one can have it, from its import of TensorFlow on.
    prepare(args.dir, start)
    kill(args.dir, RUN | sizes | EVALUATED | ({} if args.cpu else {"tpu": "local"}), start)

    from txl_tf.devices.distribute import make_strategy

    strategy = make_strategy(tpu=None if args.cpu else "local")
    checks = []
    for check in itertools.chain(trained(args.dir, sizes, strategy), operations(strategy, args.cases, args.cpu)):
        print("ok" if check.is_right else "DIFFERS", check.row(), flush=True)
        checks.append(check)
    page = args.dir / "page.md"
    page.write_text(written(checks, times(args.dir)))
    wrong = sum(not check.is_right for check in checks)
    print(f"{wrong or 'nothing'} of {len(checks)} differs; please send us {page}")
    return int(wrong > 0)


def prepare(folder, start):
    """Makes a corpus of the package's own text."""
    settings = {"dataset": "text", "source": f"{ROOT}/txl_tf/**/*.py", "splits": "shares", "data_dir": folder / "data"}
    process, log = started("prepare_data", folder, settings, start)
    if process.wait():
        sys.exit(f"error: prepare_data ended with status {process.returncode}: {log} says why")


def kill(folder, settings, start):
    """Begins the run `killed` and kills it after its first checkpoint."""
    paths = {"data_dir": folder / "data", "model_dir": folder / "killed"}
    process, log = started("train", folder, settings | paths, start)
    while not (folder / "killed" / f"ckpt-{HALF}.index").exists():
        if process.poll() is not None:
            sys.exit(f"error: train ended with status {process.returncode}: {log} says why")
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


def started(name, folder, settings, start):
    """A script that was started, and the file with what it prints."""
    command = [sys.executable, str(ROOT / "scripts" / f"{name}.py")]
    log = folder / f"{name}.log"
    with open(log, "w") as output:
        flags = [f"--{name}={value}" for name, value in settings.items()]
        return start([*command, *flags], stdout=output, stderr=output), log


def trained(folder, sizes, strategy):
    """Trains the runs; Checks of them."""
    train(folder, "whole", sizes | EVALUATED, strategy)
    train(folder, "killed", sizes | EVALUATED, strategy)
    yield Check("continued after a kill: tensors of the checkpoint that differ", differing(folder, "killed"), 0)
    train(folder, "loops", sizes | LONGER_LOOPS, strategy)
    yield Check("memory across host loops of 5 and of 10 steps: tensors that differ", differing(folder, "loops"), 0)
    train(folder, "plain", sizes | EVALUATED, strategy, ops="plain")
    for name, log in (("training", "metrics"), ("evaluation", "evaluations")):
        pairs = zip(losses(folder, "whole", log), losses(folder, "plain", log), strict=True)
        yield Check(f"{name} with --ops=plain: loss", max(abs(a - b) / b for a, b in pairs), PLAIN)
    train(folder, "bfloat16", sizes | {"dtype": "mixed_bfloat16"}, strategy)


def train(folder, name, settings, strategy, ops="proven"):
    """Trains the run `name`, or continues it."""
    from txl_tf import families, trainer
    from txl_tf.data.manifest import load_corpus

    settings = RUN | settings
    config, corpus = families.presets()[settings.pop("preset")].config, load_corpus(str(folder / "data"))
    task = families.task_of(config, families.Pretraining)
    given = trainer.by_group(config, settings)
    given["train"]["ops"] = ops
    trainer.run(task.fit_to_corpus(config, corpus, given), corpus, str(folder / name), strategy)


def differing(folder, name):
    """How many tensors of a run's last checkpoint are not those of the run `whole`, bit for bit."""
    import tensorflow as tf

    one, other = (tf.train.load_checkpoint(str(folder / run / f"ckpt-{STEPS}")) for run in ("whole", name))
    names = one.get_variable_to_shape_map().keys() | other.get_variable_to_shape_map().keys()
    return sum(not (one.has_tensor(each) and other.has_tensor(each) and same(one, other, each)) for each in names)


def same(one, other, name):
    a, b = (reader.get_tensor(name) for reader in (one, other))
    return a == b if isinstance(a, bytes) else a.tobytes() == b.tobytes()


def losses(folder, name, log):
    return [line["loss"] for line in lines(folder, name, log)]


def lines(folder, name, log):
    return [json.loads(line) for line in (folder / name / f"{log}.jsonl").read_text().splitlines()]


def operations(strategy, cases, on_cpu):
    """A Check of each case of the operations' contract, with its gradients, in each dtype."""
    import contract
    import tensorflow as tf

    from txl_tf.devices import distribute
    from txl_tf.errors import one_line
    from txl_tf.ops import platform

    for name in filter(re.compile(cases).search, contract.CASES):
        for dtype in ("float32", "bfloat16"):
            # A TPU multiplies float32 numbers in bfloat16.
            bound = contract.BOUND[dtype if on_cpu else "bfloat16"]
            with tf.device("/cpu:0"):
                inputs, exact = contract.drawn(name, dtype), contract.exact_results(name, dtype)

            def call(*inputs, name=name):
                return contract.results(name, platform.implementation(), *inputs)

            try:
                found = distribute.of_first_replica(strategy, call, *inputs)()
                yield Check(f"{name}, {dtype}", contract.error(found, exact), bound)
            except Exception as error:  # of a compiler that this program is the first to ask
                yield Check(f"{name}, {dtype}", math.nan, bound, one_line(error)[:300])


def times(folder):
    """Rows with the time of a step, in the last host loop."""
    from txl_tf.runs.model_dir import read_config

    data = read_config(str(folder / "whole")).data
    for run in ("whole", "plain", "bfloat16"):
        *_, last = lines(folder, run, "metrics")
        speed = last["tokens_per_sec"]
        yield f"| {run} | {1e3 * data.batch_size * data.tgt_len / speed:,.1f} | {speed:,.0f} |"


def written(checks, speeds):
    """The page."""
    import tensorflow as tf

    import txl_tf

    devices = [device.device_type for device in tf.config.list_logical_devices()]
    kinds = ", ".join(f"{devices.count(kind)} {kind}" for kind in sorted(set(devices)))
    return "\n".join(
        [
            "# A first run on a TPU",
            "",
            f"{datetime.date.today()}, txl_tf {txl_tf.__version__}, TensorFlow {tf.__version__}, devices: {kinds}.",
            "",
            "| checked | found | at most | |",
            "|---|---|---|---|",
            *(check.row() for check in checks),
            "",
            f"The last of {STEPS} steps of these runs took:",
            "",
            "| run | ms a step | tokens/s |",
            "|---|---|---|",
            *speeds,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
