"""The command `txl`, also `python -m txl_tf`: `txl train ..` runs scripts/train.py.

A wheel has the files of scripts/ as txl_tf/commands; an installation from a clone uses scripts/ itself. A file runs as
with `python scripts/train.py`: as the main program, with its own folder first on sys.path.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import pathlib
import sys

_HERE = pathlib.Path(__file__).parent
FOLDER = next(path for path in (_HERE / "commands", _HERE.parent / "scripts") if path.is_dir())
"""Where the commands are."""
_SERVER = next(path for path in (FOLDER / "serving", FOLDER.parent / "serving") if path.is_dir()) / "__main__.py"


TASKS = """\
see a text at once
    txl generate --model_dir=fairy_tales --prompt="Once upon a time"
train on your own text
    txl prepare_data --dataset=text --source=BOOKS --data_dir=data
    txl train --preset=demo --data_dir=data --model_dir=run
    txl evaluate --model_dir=run --data_dir=data
sort texts into classes: a table or sheet with the columns text and label
    txl finetune --init=xlnet/xlnet-base-cased --task=classification --train=table.csv --model_dir=sorter
    txl predict --model_dir=sorter --input=new.csv --output=sorted.csv
    txl finetune --init=xlnet/xlnet-base-cased --task=multi_label --train=table.csv --model_dir=labels  # cells like a|b
find names in texts: a file with a word and its tag in each line
    txl finetune --init=xlnet/xlnet-base-cased --task=tagging --train=names.conll --model_dir=finder
    txl predict --model_dir=finder --input=new.csv --output=found.csv
use a model that others trained
    txl fill --model_dir=xlnet/xlnet-base-cased --text="The capital of France is ____ ."
    txl import_checkpoint --help
serve a model over HTTP, with a page to play on
    txl export_savedmodel --model_dir=run --export_dir=export
    txl serve --export_dir=export
"""
"""What `txl` alone prints: tasks, each with an example."""


def commands() -> dict[str, pathlib.Path]:
    """The files of all commands by name: those that can be run."""
    files = sorted(FOLDER.glob("*.py"))
    found = {path.stem: path for path in files if '__name__ == "__main__"' in path.read_text("utf-8")}
    return found | {"serve": _SERVER}


def overview() -> str:
    """The text of `txl --help`: every command with the first line of its docstring."""
    lines = [
        "Transformer-XL and XLNet: data, training, evaluation and use. `txl COMMAND --help` says more.",
        "",
        "usage: txl COMMAND --FLAG=VALUE ..",
        "",
    ]
    for name, path in commands().items():
        about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        lines.append(f"  {name:21}{about.splitlines()[0]}")
    return "\n".join([*lines, "", "From Python: import txl_tf; txl_tf.load(MODEL_DIR)."])


def main() -> int | None:
    """Runs the command that sys.argv names; the exit status, if the command does not end the process itself."""
    if len(sys.argv) == 1:
        print(f"{TASKS}\n`txl --help` lists all commands, and `txl COMMAND --help` its flags.")
        return 0
    name = sys.argv[1]
    if name.lstrip("-") in ("help", "h", "helpfull", "helpshort"):
        print(overview())
        return 0
    found = commands()
    command = name.replace("-", "_")
    path = found.get(command)
    if path is None:
        near = difflib.get_close_matches(command, found, 1)
        hint = f"did you mean {near[0]}?" if near else "`txl --help` lists them"
        print(f"error: {name!r} is not a command of txl: {hint}", file=sys.stderr)
        return 2
    sys.argv = [f"txl {command}", *sys.argv[2:]]
    sys.path.insert(0, str(path.parents[1] if path == _SERVER else FOLDER))
    spec = importlib.util.spec_from_file_location("__main__", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = sys.modules["__main__"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return None


if __name__ == "__main__":
    sys.exit(main())
