"""Not a test: the cases of the campaign, generated from the commands' flags and from the files that they read."""

import functools
import json
import os
import pathlib
import xml.etree.ElementTree

import processes

from campaign import damage, world
from campaign.attempts import attempt
from campaign.case import ASCII, Case
from campaign.commands import COMMANDS, ROOT
from campaign.kinds import archives, encodings, own_text, paths, published, runs, surrogates, tables

NUMBERS = ("nan", "inf", "-1", "0", "1" + 30 * "0", "x")
INTEGER_LISTS = ("cutoffs", "profile_steps", "seeds", "context_lengths")
EMPTY = ("prompt", "text", "context", "beam_args", "warm_start", "cutoffs", "profile_steps")
"""Flags whose text may be empty."""
KINDS = (paths, own_text, archives, encodings, surrogates, tables, published, runs)
"""Modules with cases that people run into; the titles begin with the module's name."""


@functools.cache
def types_of_flags(script):
    """The flags of a command: {name: type}, as absl names types."""
    done = processes.run([script, "--helpxml"], timeout=120)
    flags = xml.etree.ElementTree.fromstring(done.stdout[done.stdout.index("<?xml") :]).iter("flag")
    return {flag.findtext("name"): flag.findtext("type") for flag in flags if flag.findtext("key") == "yes"}


def own_flags(name):
    """The flags of a command: {name: type}. Those of a script with several commands are only the first one's."""
    command = COMMANDS[name]
    if command.by_argparse:
        kinds = {True: "float", False: "int"}
        return {flag: kinds["." in v] if v[0].isdigit() else "string" for flag, v in command.flags.items()}
    kinds = types_of_flags(str(ROOT / command.script))
    first = next(other for other in COMMANDS.values() if other.script == command.script)
    new = {flag for flag, value in command.flags.items() if first is not command and first.flags.get(flag) != value}
    return {flag: kind for flag, kind in kinds.items() if first is command or flag in new}


def number_cases(name):
    """Every numeric flag of `own_flags` with every of NUMBERS."""
    for flag, kind in own_flags(name).items():
        if kind in ("int", "float") or flag in INTEGER_LISTS:
            for number in NUMBERS:
                valid_float = kind == "float" and number[0] == "1" and name != "serve"
                refused = (number not in ("-1", "0") and not valid_float) or (name == "serve" and flag != "port")
                yield Case(name, f"--{flag}={number}", {flag: number}, refused=refused)


def text_cases(name):
    """Every flag that takes a text, with none; and paths to nothing, to things that are not files, or not in UTF-8."""
    command = COMMANDS[name]
    kinds = own_flags(name)
    for flag, kind in kinds.items():
        if (kind == "string" or kind.startswith("comma")) and flag not in EMPTY:
            yield Case(name, f"--{flag}=", {flag: ""}, refused=True)
        if kind == "string":
            yield Case(name, f"--{flag} that is not UTF-8", {flag: "caf\udce9"}, refused=True)
    texts = {flag: path for flag, path in command.flags.items() if path and kinds.get(flag) == "string"}
    for flag, path in texts.items():
        if path in command.writes and path not in command.reads:
            places = ["a circle"] if pathlib.PurePath(path).suffix else ["a circle", "a pipe", "/dev/zero", "a file"]
            for place in [*places, "a file/below"]:
                yield Case(name, f"--{flag}={place}", {flag: place}, refused=True)
        elif is_input(path):
            for place in ("nothing", "a circle", "a pipe", "/dev/zero", "a folder", "a file"):
                if place in ("nothing", "a folder") and path in command.writes:
                    continue  # a new run
                if place != "a file" or pathlib.PurePath(path).suffix != ".txt":
                    yield Case(name, f"--{flag}={place}", {flag: place}, refused=True)


def is_input(path):
    """Whether a flag's value is a path in the world."""
    return pathlib.PurePath(path).parts[0] in world.PARTS


def file_cases(name, root, seen):
    """Every file that a command reads, damaged in every way, and with each key of JSON missing and of another type.

    Args:
        name: of the command.
        root: the world.
        seen: parts of the world that earlier commands read: since one function reads a file for all commands, a few
            ways are enough for these.
    """
    for part in COMMANDS[name].reads:
        paths = [root / part] if (root / part).is_file() else sorted((root / part).rglob("*"))
        for path in paths:
            if not path.is_file() or "tensorboard" in path.parts or path.suffix == ".md":
                continue
            file = str(path.relative_to(root))
            for kind in damage.kinds(path) if part not in seen else ("cut", "missing", "a pipe"):
                yield Case(name, f"{file} {kind}", file=(file, kind))
            if part not in seen and path.suffix == ".json":
                value = json.loads(path.read_text())
                for key in value if isinstance(value, dict) else ():
                    for kind in ("without", "list in"):
                        yield Case(name, f"{kind} {key} {file}", file=(file, f"{kind} {key}"))


def other_cases(name):
    """Cases for one command alone."""
    by_name = {
        "generate": [
            Case("generate", "ascii terminal", {"prompt": "word1 ü", "prompt_file": False}, says="word1 ü",
                 environment=ASCII),
            Case("generate", "float16", {"dtype": "mixed_float16"}, works=True),
            Case("generate", "prompt that is not UTF-8", {"prompt": "\udcff", "prompt_file": False}, refused=True),
        ],
        "fill": [Case("fill", "ascii terminal", {"text": "ü", "text_file": False}, says="ü", environment=ASCII)],
        "train": [
            Case("train", "2^31-1 steps and a wrong split", {"train_steps": str(2**31 - 1), "batch_size": "100000"},
                 refused=True),
            Case("train", "--tpu=nope", {"tpu": "nope"}, refused=True, says="--tpu=nope"),
            Case("train", "--vocab_size of another corpus", {"vocab_size": "7"}, refused=True, says="vocab_size"),
            Case("train", "warm start of another model", {"warm_start": "nothing"}, refused=True),
            *(
                Case("train", f"--dropout_sites={sites}", {"dropout_sites": sites}, refused=True, says="dropout_sites=")
                for sites in ("nope:0.1", "input", "input:x", "input:1", "input:0.1,input:0.2", "input:nan")
            ),
            *(
                Case("train", f"--freeze={names}", {"freeze": names}, refused=True, says="freeze")
                for names in ("nope", "layers:1", "layers:0-", "layers:1-0", "layers:x", ",")
            ),
            Case("train", "float16", {"dtype": "mixed_float16"}, works=True),
            Case("train", "two contexts that no code defines", {"ext_len": "4"}, refused=True, says="ext_len=4"),
            Case("train", "lengths as uneven as long", {"tgt_len_std": "4"}, refused=True, says="tgt_len_std=4"),
            Case("train", "a second phase without a first", {"set": "average_lr_ratio=0.5"}, refused=True,
                 says="average_from_step"),
            *(
                Case("train", f"--set={given}", {"set": given}, refused=True, says="--set=")
                for given in ("n_layer=2", "nope=1", "pre_lnorm", "pre_lnorm=yes", "dropemb=x", "max_bad_steps=1.5")
            ),
            Case("train", "a range of --set", {"set": "dropemb=1"}, refused=True, says="dropemb=1"),
        ],
        "finetune": [
            Case("finetune", "frozen", {"freeze": "embedding,layers:0"}, works=True, says="frozen"),
            Case("finetune", "nothing left to learn", {"freeze": "embedding,layer,head"}, refused=True, says="freeze"),
            Case("finetune", "float16", {"dtype": "mixed_float16"}, works=True),
        ],
        "export": [Case("export", "float16", {"dtype": "mixed_float16"}, works=True)],
        "aot": [
            Case("aot", f"--topology={topology}", {"topology": topology}, refused=True, says="--topology")
            for topology in ("v5e:0x0", "nope", "v5e:", ":", "v5e:-1x1", "v9:1x1", "v5e:1x1x1x1x1")
        ],
        "serve": [
            Case("serve", "an ordinary folder", {"export_dir": "a folder"}, refused=True, says="a folder"),
            Case("serve", "another model", {"export_dir": "model"}, refused=True, says="model is not an exported"),
            *(
                Case("serve", f"--{flag}={value}", {flag: value}, refused=True, says=f"--{flag}={value}")
                for flag, value in (("port", "65536"), ("port", "1"), ("host", "256.1.1.1"), ("host", "a b"))
                if os.geteuid() or value != "1"  # root may listen there
            ),
        ],
        "saved": [Case("saved", "an ordinary folder", {"export_dir": "a folder"}, refused=True, says="a folder")],
    }  # fmt: skip
    if name in ("describe", "score", "train", "predict"):
        yield Case(name, "ascii terminal", environment=ASCII, says="größe" if name in ("describe", "score") else "")
    yield from by_name.get(name, ())
    for seconds in (0.6, 1.5, 4.0, 7.0):
        yield Case(name, f"Ctrl-C after {seconds} s", interrupted=seconds)


@functools.cache
def all_cases(root):
    """Every case; a list."""
    return list(_cases(root))


def attempt_number(number, root):
    """`attempt` of a case of `all_cases`, which cannot be sent to a process."""
    return attempt(all_cases(root)[number], root)


def _cases(root):
    seen = set()
    for name, command in COMMANDS.items():
        if command.by_hand:
            continue
        yield from number_cases(name)
        yield from text_cases(name)
        yield from file_cases(name, root, seen)
        yield from other_cases(name)
        seen.update(command.reads)
    for kind in KINDS:
        yield from kind.cases()
