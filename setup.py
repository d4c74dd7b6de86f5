"""What pyproject.toml cannot say: a wheel has the commands of scripts/ as txl_tf/commands, for `txl`."""

import pathlib

from setuptools import setup

COMMANDS = [path.stem for path in sorted(pathlib.Path("scripts").glob("*.py"))]

setup(
    package_dir={"txl_tf.commands": "scripts", "txl_tf.commands.serving": "serving"},
    py_modules=[f"txl_tf.commands.{name}" for name in COMMANDS] + ["txl_tf.commands.serving.terminal"],
)
