"""Not a test: Python programs in processes of their own, as subprocess starts them, but without seconds of imports.

A server process imports TensorFlow and does not use it, so that no thread of TensorFlow's is there yet. Every
program is a fork of it, with the arguments, the environment, the folder and the sys.path that `python PROGRAM` would
have. It ends as an interpreter ends, and its exit status is the true one.

There are two servers. That of most programs, and of clients of a SavedModel, has only TensorFlow, and Keras, which it
imports: a program that forgets to import txl_tf or TensorFlow Text fails as it should. That of the programs in
scripts/ is a fork of it that also has most of txl_tf.

Tests of the start itself need subprocess: messages while TensorFlow loads, and the modules that --help imports. So do
tests of several workers, which watch each other through TensorFlow's servers.
"""

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from unittest import mock

PROGRAMS = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(PROGRAMS)
ROOT = os.path.dirname(TESTS)
PATHS = os.pathsep.join([ROOT, TESTS, PROGRAMS, os.path.join(TESTS, "references"), os.path.join(TESTS, "small")])
"""PYTHONPATH of a program that imports what tests import."""

LONGEST = 1 << 20
"""Bytes of a message."""

OWN = [
    *("tensorflow_text", "txl_tf.api", "txl_tf.finetuner", "txl_tf.inference.export", "txl_tf.inference.causal.recl"),
    *("txl_tf.data.prepare", "txl_tf.published.importing", "txl_tf.training.loop"),
]
"""The modules that the server of scripts/ imports."""
CLIENT = "continue_savedmodel.py"
"""The program in scripts/ that must do without txl_tf."""


class Popen:
    """A program that runs, with a part of what subprocess.Popen has.

    Args:
        command: a file, "-c" and a text, or "-m" and a module, as they follow `python`, and its arguments.
        stdout: an open file, or subprocess.PIPE: then the attribute `stdout` is a text file to read from.
        stderr: an open file, or subprocess.STDOUT. None for either: as this process has it.
        cwd: the folder it starts in.
        env: what its environment has besides this process's; there are no GPUs.
    """

    def __init__(self, command, *, stdout=None, stderr=None, cwd=None, env=None):
        self.args, self.returncode, self.stdout = command, None, None
        files = [1 if stdout is None else stdout, 2 if stderr is None else stderr]
        if piped := stdout == subprocess.PIPE:
            read, files[0] = os.pipe()
            self.stdout = os.fdopen(read)
        if stderr == subprocess.STDOUT:
            files[1] = files[0]
        request = {
            "command": [os.fspath(word) for word in command],
            "cwd": os.path.abspath(cwd or os.curdir),
            "env": os.environ | {"CUDA_VISIBLE_DEVICES": "-1"} | (env or {}),
        }
        folder, program = os.path.split(os.path.normpath(os.path.join(request["cwd"], request["command"][0])))
        self._server = server(folder == os.path.join(ROOT, "scripts") and program != CLIENT)
        self.pid = self._server.ask(request, [file if isinstance(file, int) else file.fileno() for file in files])
        if piped:
            os.close(files[0])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.stdout:
            self.stdout.close()
        self.wait()

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def poll(self):
        """The exit status, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask({"wait": self.pid, "options": os.WNOHANG})
        return self.returncode

    def wait(self, timeout=None):
        """The exit status: minus a signal's number if that ended the program."""
        if self.returncode is None:
            try:
                self.returncode = self._server.ask({"wait": self.pid, "options": 0}, timeout=timeout)
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                self.returncode = self._server.answer()
                raise subprocess.TimeoutExpired(self.args, timeout) from None
        return self.returncode


def run(command, *, timeout=600, **options):
    """What subprocess.run gives, with the output as text; options: of Popen."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        returncode = Popen(command, stdout=stdout, stderr=stderr, **options).wait(timeout)
        stdout.seek(0), stderr.seek(0)
        return subprocess.CompletedProcess(command, returncode, stdout.read(), stderr.read())


class Server:
    """The process that forks, as those see it that ask for programs; `own`: those in scripts/."""

    def __init__(self, own):
        self.connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            if own:
                server(False).ask({"load": OWN}, [other.fileno()])
                return
            process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # so that Python's own files do not take what programs get for seekable
                stderr=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            )
        atexit.register(process.wait)
        atexit.register(self.connection.close)  # called first, and ends the server

    def ask(self, request, files=(), timeout=None):
        """The answer to a request; TimeoutError if it takes longer, and then it comes later."""
        socket.send_fds(self.connection, [json.dumps(request).encode()], files)
        return self.answer(timeout)

    def answer(self, timeout=None):
        self.connection.settimeout(timeout)
        return json.loads(self.connection.recv(LONGEST))


server = functools.cache(Server)


def serve(connection):
    """Forks for every request. Returns in the forks alone: a request and its files."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, LONGEST, 2)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "wait" in request:
            ended, status = os.waitpid(request["wait"], request["options"])
            answer = os.waitstatus_to_exitcode(status) if ended else None
        else:
            answer = os.fork()
            if not answer:
                connection.close()
                return request, files
        for file in files:
            os.close(file)
        connection.send(json.dumps(answer).encode())


def spare(names):
    """The interpreter's end will not destroy these modules, which would write to all of their memory's pages.

    Args:
        names: of modules.
    """
    kept = [sys.modules.pop(name, None) for name in names]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def become(request, files):
    """Makes this process the program that was asked for."""
    atexit.register(spare, sys.modules.keys() - {"sys", "builtins", "__main__"})  # first, so it is called last
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if encoding := os.environ.get("PYTHONIOENCODING"):
        sys.stdout.reconfigure(encoding=encoding), sys.stderr.reconfigure(encoding=encoding)
    program, *arguments = request["command"]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = ["" if program in ("-c", "-m") else os.path.dirname(os.path.abspath(program)), *paths]
    if program == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif program == "-c":
        code, *arguments = arguments
        sys.argv = ["-c", *arguments]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")


def load(names):
    """Imports modules, for all forks to come."""
    from absl import app

    # TensorFlow's import asks absl to look for GPUs as soon as flags are parsed. In a script they are parsed already,
    # and it looks during the import, in which messages are hidden. Here it would look in the fork, and report.
    with mock.patch.object(app, "call_after_init"):
        sys.path.append(ROOT)
        for name in names:
            importlib.import_module(name)
        sys.path.remove(ROOT)
    gc.freeze()  # so that collections do not copy these pages in every fork
    gc.set_threshold(100_000)  # as in scripts/start_up.py


if __name__ == "__main__":
    request, files = {"load": ["tensorflow"]}, [int(sys.argv[1])]
    while "load" in request:
        load(request["load"])
        request, files = serve(socket.socket(fileno=files[0]))
    become(request, files)
