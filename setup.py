"""What pyproject.toml cannot say: a wheel has scripts/ as txl_tf/commands, and serving/ in it, for `txl`."""

import pathlib

from setuptools import find_packages, setup

COMMANDS = [path.stem for path in sorted(pathlib.Path("scripts").glob("*.py"))]
SERVER = [f"txl_tf.commands.{name}" for name in find_packages(include=["serving*"])]

setup(
    packages=find_packages(include=["txl_tf*"]) + SERVER,
    package_dir={"txl_tf.commands": "scripts", "txl_tf.commands.serving": "serving"},
    py_modules=[f"txl_tf.commands.{name}" for name in COMMANDS],
)
