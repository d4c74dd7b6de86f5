"""Files of JSON lines that a continued run appends to: metrics.jsonl, evaluations.jsonl and bad_steps.jsonl."""

import json
from typing import Any

import tensorflow as tf

from txl_tf.errors import one_line
from txl_tf.runs.model_dir import read_log
from txl_tf.storage.files import write_atomically
from txl_tf.storage.strict_json import Fields


class JsonLog:
    """A file of JSON objects, local or gs://, one per line, each with the "step" it was written at.

    Args:
        step: updates already made; lines of later steps, from a run that was killed after its last save, are dropped.
        writes: whether to write the file; if not, lines are only kept in memory.
        fields: further fields that each line must have, as for `check_record`.
    """

    def __init__(self, path: str, step: int, writes: bool = True, fields: Fields | None = None):
        self.path = path
        self.writes = writes
        self.lines = [line for line in read_log(path, fields) if line["step"] <= step]
        self.complete = False
        self._write_all()

    def append(self, line: dict[str, Any]) -> None:
        """Adds a line. If it cannot be written (a full disk), it is kept in memory and written with the next line."""
        self.lines.append(line)
        try:
            if self.complete and self.writes:
                self.complete = False
                with tf.io.gfile.GFile(self.path, "a") as file:
                    file.write(json.dumps(line) + "\n")
                self.complete = True
            else:
                self._write_all()
        except (OSError, tf.errors.OpError) as error:
            print(f"{self.path} could not be written ({one_line(error)}); the next line will try again", flush=True)

    def _write_all(self) -> None:
        if self.writes and (self.lines or tf.io.gfile.exists(self.path)):
            write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))
        self.complete = True
