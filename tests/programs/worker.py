"""Not a test: one of two workers, which train together, are stopped together and go on together.

    TF_CONFIG=... python worker.py CORPUS FOLDER

FOLDER/whole is a run without a stop. In FOLDER/cut the second worker gets a SIGTERM in the middle of an evaluation. In
FOLDER/lost it is killed there.
"""

import json
import os
import signal
import sys

from txl_tf.devices.distribute import is_chief, make_strategy, of_chief

STRATEGY = make_strategy()  # before TensorFlow does anything else

from small_run import CONFIG, change  # noqa: E402

from txl_tf.data.manifest import load_corpus  # noqa: E402
from txl_tf.errors import InputError  # noqa: E402
from txl_tf.inference.evaluate import Evaluator  # noqa: E402
from txl_tf.training.interruption import TrainingStoppedError  # noqa: E402
from txl_tf.training.loop import train  # noqa: E402

RUN = change(
    CONFIG,
    model={"dropout": 0.0, "dropatt": 0.0, "cutoffs": (100, 110), "div_val": 2},
    train={"log_steps": 1, "accumulate_steps": 2, "shard_optimizer": True},
)


def evaluator(corpus, strategy):
    return lambda model: Evaluator(RUN, model, corpus, "valid", strategy)


def main(corpus, folder):
    corpus, chief = load_corpus(corpus), is_chief(STRATEGY)
    assert chief == (json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0)
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert of_chief(STRATEGY, commit if chief else commit[::-1]) == commit
    # The second worker is told another place, where nothing may appear.
    train(RUN, corpus, f"{folder}/{'whole' if chief else 'elsewhere'}", STRATEGY, evaluator(corpus, STRATEGY))

    def make_interrupted(number):
        def make(model):
            evaluate = evaluator(corpus, STRATEGY)(model)

            def interrupted(progress):
                if not chief:
                    os.kill(os.getpid(), number)
                return evaluate(progress)

            return interrupted

        return make

    try:
        train(RUN, corpus, f"{folder}/cut", STRATEGY, make_interrupted(signal.SIGTERM))
        raise AssertionError("nobody stopped")
    except TrainingStoppedError as stopped:
        print(stopped)
    train(RUN, corpus, f"{folder}/cut", STRATEGY, evaluator(corpus, STRATEGY))
    try:
        train(RUN, corpus, f"{folder}/lost", STRATEGY, make_interrupted(signal.SIGKILL))
    except InputError as error:
        print(error, flush=True)
        os._exit(0)  # without the farewell that the workers owe each other


if __name__ == "__main__":
    main(*sys.argv[1:])
