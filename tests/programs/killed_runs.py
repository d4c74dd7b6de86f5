"""Not a test: runs that kill themselves with SIGKILL at chosen places, each continuing the one before.

    python killed_runs.py CORPUS FOLDER

FOLDER/whole is a run without a kill, FOLDER/killed the one that was killed again and again, until it got to its end.
Every run is a fork of this process, which has imported TensorFlow and not yet used it.
"""

import os
import pathlib
import signal
import sys

import tensorflow as tf
from small_run import CONFIG, change

from txl_tf.data.manifest import load_corpus
from txl_tf.devices.distribute import make_strategy
from txl_tf.training.board import json_log
from txl_tf.training.loop import train

RUN = change(CONFIG, train={"eval_steps": 3, "save_steps": 2, "keep_checkpoints": 1, "ema_decay": 0.9})


def evaluate(model):
    """Falls as weights grow, so that every evaluation is the best, and depends on every weight."""
    return {"loss": -float(tf.linalg.global_norm([variable.value for variable in model.trainable_variables]))}


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def in_the_middle_of_a_save():
    """The second save, with half of its data on disk."""
    write = tf.train.Checkpoint.write

    def write_half(self, path):
        write(self, path)
        if path.endswith("ckpt-4"):
            data = pathlib.Path(path + ".data-00000-of-00001")
            os.truncate(data, data.stat().st_size // 2)
            pathlib.Path(path + ".index").unlink()
            kill()

    tf.train.Checkpoint.write = write_half


def between_data_and_index():
    rename = tf.io.gfile.rename

    def rename_data(old, new, overwrite=False):
        if new.endswith("ckpt-4.index"):
            kill()
        rename(old, new, overwrite=overwrite)

    tf.io.gfile.rename = rename_data


def in_the_middle_of_a_line():
    def append_half(self, line):
        if line["step"] == 6:
            with open(self.path, "a") as file:
                file.write(f'{{"step": {line["step"]}, "lo')
            kill()
        append(self, line)

    append = json_log.JsonLog.append
    json_log.JsonLog.append = append_half


def in_an_evaluation():
    global evaluate
    evaluate = lambda model: kill()  # noqa: E731


def before_the_best_is_saved():
    """With the line of the best evaluation written, and its checkpoint not."""
    write = tf.train.Checkpoint.write
    tf.train.Checkpoint.write = lambda self, path: kill() if path.endswith("ckpt-9") else write(self, path)


def while_old_ones_are_dropped():
    remove = tf.io.gfile.remove

    def remove_one(path):
        remove(path)
        kill()

    tf.io.gfile.remove = remove_one


def run(corpus, model_dir, prepare=None):
    """Trains in a fork; if `prepare` set up a kill, it must have happened."""
    child = os.fork()
    if not child:
        if prepare:
            prepare()
        train(RUN, corpus, str(model_dir), make_strategy("one_device"), lambda model: lambda progress: evaluate(model))
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if prepare else 0), f"{prepare} ended with {status}"


def main(corpus, folder):
    corpus, folder = load_corpus(corpus), pathlib.Path(folder)
    run(corpus, folder / "whole")
    for prepare in (
        in_the_middle_of_a_save,
        between_data_and_index,
        in_the_middle_of_a_line,
        in_an_evaluation,
        before_the_best_is_saved,
        while_old_ones_are_dropped,
    ):
        run(corpus, folder / "killed", prepare)
    run(corpus, folder / "killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
