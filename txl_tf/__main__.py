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


def commands() -> dict[str, pathlib.Path]:
    """The files of all commands by name: those that can be run."""
    files = sorted(FOLDER.glob("*.py"))
    return {path.stem: path for path in files if '__name__ == "__main__"' in path.read_text("utf-8")}


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
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name.lstrip("-") in ("help", "h", "helpfull", "helpshort"):
        print(overview())
        return 0
    found = commands()
    path = found.get(name.replace("-", "_"))
    if path is None:
        near = difflib.get_close_matches(name.replace("-", "_"), found, 1)
        hint = f"did you mean {near[0]}?" if near else "`txl --help` lists them"
        print(f"error: {name!r} is not a command of txl: {hint}", file=sys.stderr)
        return 2
    sys.argv = [f"txl {path.stem}", *sys.argv[2:]]
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("__main__", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = sys.modules["__main__"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return None


if __name__ == "__main__":
    sys.exit(main())
