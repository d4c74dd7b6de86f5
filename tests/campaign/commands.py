"""Not a test: every command with flags that work, the files it reads, and what counts as its result."""

import dataclasses
import json
import pathlib
import re

import openpyxl

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Command:
    """A command as it is run in a folder with copies of the world's parts; paths are relative to that folder.

    Attributes:
        script: below the repository.
        flags: that make it succeed; None as a value: a flag without one.
        reads: the parts of the world that it reads.
        writes: paths that it may create; one of `reads` may be changed only if the command succeeds.
        result: function (folder, what it printed) -> what must be equal whenever it succeeds.
        by_argparse: whether its flags are argparse's; numbers and texts are then those in `flags`.
        alone: whether it must not find modules loaded that it does not import itself.
        by_hand: whether no cases are generated for it.
    """

    script: str
    flags: dict[str, str | None]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    result: object = None
    by_argparse: bool = False
    alone: bool = False
    by_hand: bool = False

    def line(self, flags):
        """The arguments that follow `python`; a flag whose value is a list is given several times."""
        given = [(name, value) for name, value in (self.flags | flags).items() if value is not False]
        given = [(name, v) for name, value in given for v in (value if isinstance(value, list) else [value])]
        return [str(ROOT / self.script), *(f"--{name}" + ("" if v is None else f"={v}") for name, v in given)]

    def outcome(self, folder, stdout):
        """The result of a run that succeeded."""
        return self.result(folder) if self.result else re.sub(r'"(tokens|examples)_per_sec": [\d.]+', "", stdout)


def metrics(path):
    """The function that reads a run's metrics, without the field that is about the clock."""

    def read(folder):
        lines = (folder / path / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "tokens_per_sec"} for line in lines]

    return read


def files(path):
    """The function that reads the sizes of all files of a folder.

    Those of the model card are left out: it names the model_dir, and shows the evaluations, whatever the weights are.
    """

    def read(folder):
        of_the_card = ("README.md", "learning_curve.png")
        found = [file for file in sorted((folder / path).rglob("*")) if file.is_file() and file.name not in of_the_card]
        return {str(file.relative_to(folder)): len(file.read_bytes()) for file in found}

    return read


def predictions(path):
    """The function that reads what was predicted in a table of JSON lines, whatever other columns it has."""

    def read(folder):
        lines = map(json.loads, (folder / path).read_text().splitlines())
        found = [{name: line[name] for name in line if name.startswith(("prediction", "prob"))} for line in lines]
        return [line for line in found if line]

    return read


def cells(path):
    """The function that reads all cells of a workbook's first sheet."""

    def read(folder):
        return list(openpyxl.load_workbook(folder / path).active.iter_rows(values_only=True))

    return read


def corpus(path):
    """The function that reads all files of a data_dir but the manifest, which says what they were made from."""

    def read(folder):
        return {file.name: file.read_bytes() for file in (folder / path).iterdir() if file.name != "manifest.json"}

    return read


def flags(text):
    """Flags as they are written on a command line, without spaces in values."""
    words = (word.removeprefix("--").partition("=") for word in text.split())
    return {name: value if sign else None for name, sign, value in words}


TINY = flags(
    "--preset=enwik8_base --n_layer=1 --d_model=8 --d_embed=8 --n_head=1 --d_head=8 --d_inner=8 --mem_len=8 "
    "--batch_size=4 --tgt_len=8 --eval_mem_len=8 --eval_batch_size=4 --eval_tgt_len=16 --eval_clamp_len=-1 "
    "--train_steps=4 --warmup_steps=1 --log_steps=1 --save_steps=2 --eval_steps=2 --nojit_compile --noeval_jit_compile"
)
IMPORTED = flags("--dataset=text --batch_size=2 --tgt_len=4 --mem_len=5 --clamp_len=4")
ONE_TABLE = flags(
    "--task=classification --train=tickets.csv --text_column=message --label_column=team --model_dir=new --tgt_len=16 "
    "--batch_size=4 --train_steps=2 --nojit_compile --noeval_jit_compile"
)

COMMANDS = {
    "prepare": Command(
        "scripts/prepare_data.py",
        flags("--dataset=text --source=text --data_dir=new --vocab=words --min_count=1"),
        ("text",),
        ("new",),
        corpus("new"),
    ),
    "prepare_pieces": Command(
        "scripts/prepare_data.py",
        flags("--dataset=text --source=text --data_dir=new --vocab=sentencepiece --vocab_size=300"),
        ("text",),
        ("new",),
        corpus("new"),
    ),
    "prepare_listed": Command(
        "scripts/prepare_data.py",
        flags("--dataset=text --source=text --data_dir=new --vocab=words --vocab_file=list.txt"),
        ("text", "list.txt"),
        ("new",),
        corpus("new"),
    ),
    "prepare_task": Command("scripts/prepare_task.py", flags("--task=match --out_dir=new"), (), ("new",), files("new")),
    "describe": Command("scripts/describe_data.py", flags("--data_dir=words --verify --example_tokens=8"), ("words",)),
    "describe_model": Command(
        "scripts/describe_model.py",
        flags("--model_dir=half"),
        ("half",),
        ("half",),
        lambda folder: (folder / "half" / "README.md").exists(),
    ),
    "train": Command(
        "scripts/train.py",
        TINY | flags("--data_dir=words --model_dir=new"),
        ("words",),
        ("new",),
        metrics("new"),
    ),
    "warm": Command(
        "scripts/train.py",
        TINY | flags("--data_dir=words --warm_start=half --freeze=embedding --model_dir=new"),
        ("words", "half"),
        ("new",),
        metrics("new"),
    ),
    "extend": Command(
        "scripts/train.py",
        flags("--model_dir=half --data_dir=words --train_steps=6 --extend"),
        ("words", "half"),
        ("half",),
        metrics("half"),
    ),
    "settings_from": Command(
        "scripts/train.py",
        flags("--settings_from=half --data_dir=words --train_steps=2 --eval_tokens=30 --model_dir=new"),
        ("words", "half"),
        ("new",),
        metrics("new"),
    ),
    "continue": Command(
        "scripts/train.py",
        TINY | flags("--data_dir=words --model_dir=half"),
        ("words", "half"),
        ("half",),
        metrics("half"),
    ),
    "evaluate": Command(
        "scripts/evaluate.py",
        flags("--model_dir=model --data_dir=words --split=test --per_token_out=tokens.tsv --checkpoint=best"),
        ("model", "words"),
        ("tokens.tsv",),
    ),
    "evaluate_text": Command(
        "scripts/evaluate.py",
        flags("--model_dir=model --text_file=prompt.txt --tgt_len=4 --mem_len=4"),
        ("model", "prompt.txt"),
    ),
    "recl": Command(
        "scripts/recl.py",
        flags(
            "--model_dirs=model,model --data_dir=words --context_lengths=2,4 --positions=8 --top_r=0.5 --threshold=0.01"
        ),
        ("model", "words"),
    ),
    "generate": Command(
        "scripts/generate.py",
        flags("--model_dir=model --prompt_file=prompt.txt --max_tokens=4"),
        ("model", "prompt.txt"),
    ),
    "continue_xlnet": Command(
        "scripts/generate.py",
        flags("--model_dir=xlnet --prompt_file=prompt.txt --max_tokens=4 --mem_len=4"),
        ("xlnet", "prompt.txt"),
    ),
    "generate_many": Command(
        "scripts/generate.py",
        flags("--model_dir=model --prompts_jsonl=prompts.jsonl --max_tokens=4"),
        ("model", "prompts.jsonl"),
    ),
    "search": Command(
        "scripts/generate.py",
        flags("--model_dir=model --prompt=word1 --max_tokens=4 --beam_size=2 --length_penalty=0.5"),
        ("model",),
    ),
    "score": Command(
        "scripts/score.py", flags("--model_dir=model --input=prompt.txt --batch_size=2"), ("model", "prompt.txt")
    ),
    "score_table": Command(
        "scripts/score.py",
        flags("--model_dir=model --input=tickets.csv --output=found.csv --text_column=message"),
        ("model", "tickets.csv"),
        ("found.csv",),
        lambda folder: (folder / "found.csv").read_text(),
    ),
    "evaluate_published": Command(
        "scripts/evaluate.py",
        flags("--model_dir=huggingface --text_file=prompt.txt --tgt_len=4"),
        ("huggingface", "prompt.txt"),
        ("cache",),
    ),
    "generate_published": Command(
        "scripts/generate.py", flags("--model_dir=huggingface --prompt=w1 --max_tokens=4"), ("huggingface",), ("cache",)
    ),
    "fill": Command(
        "scripts/fill.py",
        flags("--model_dir=xlnet --text_file=prompt.txt --score --context=word7 --beam_size=2 --top=2"),
        ("xlnet", "prompt.txt"),
    ),
    "fill_published": Command(
        "scripts/fill.py", flags("--model_dir=xlnet.zip --text=word1____"), ("xlnet.zip",), ("cache",)
    ),
    "candidates": Command(
        "scripts/fill.py",
        flags("--model_dir=xlnet --text=word1____ --candidates=River,fine --context=word7 --json"),
        ("xlnet",),
    ),
    "predict": Command(
        "scripts/predict.py",
        flags("--model_dir=tuned --input=table.tsv --output=found.jsonl --all_probabilities --batch_size=2 --metrics"),
        ("tuned", "table.tsv"),
        ("found.jsonl",),
        predictions("found.jsonl"),
    ),
    "predict_table": Command(
        "scripts/predict.py",
        flags("--model_dir=tuned --input=tickets.csv --text_column=message --output=found.csv --all_probabilities"),
        ("tuned", "tickets.csv"),
        ("found.csv", "found.tsv", "found.jsonl", "found.xlsx", "FOUND.CSV"),
        lambda folder: (folder / "found.csv").read_text() if (folder / "found.csv").exists() else "",
    ),
    "predict_workbook": Command(
        "scripts/predict.py",
        flags("--model_dir=tuned --input=tickets.xlsx --text_column=message --output=found.xlsx"),
        ("tuned", "tickets.xlsx"),
        ("found.xlsx",),
        cells("found.xlsx"),
    ),
    "answer": Command(
        "scripts/predict.py",
        flags("--model_dir=answering --input=squad.json --squad_dir=new --batch_size=2"),
        ("answering", "squad.json"),
        ("new",),
    ),
    "tag": Command(
        "scripts/predict.py",
        flags("--model_dir=tagging --input=words.conll --output=found.conll --batch_size=2 --metrics"),
        ("tagging", "words.conll"),
        ("found.conll", "found.jsonl"),
        lambda folder: (folder / "found.conll").read_text(),
    ),
    "label": Command(
        "scripts/predict.py",
        flags("--model_dir=labelling --input=sets.csv --output=found.csv --label_separator=; --batch_size=2 --metrics"),
        ("labelling", "sets.csv"),
        ("found.csv",),
        lambda folder: (folder / "found.csv").read_text(),
    ),
    "finetune": Command(
        "scripts/finetune.py",
        flags(
            "--init=xlnet --task=classification --train=table.tsv --dev=table.tsv --model_dir=new --tgt_len=16 "
            "--batch_size=4 --train_steps=2 --nojit_compile --noeval_jit_compile --seeds=1"
        ),
        ("xlnet", "table.tsv"),
        ("new",),
        metrics("new"),
    ),
    "finetune_published": Command(
        "scripts/finetune.py",
        ONE_TABLE | flags("--init=xlnet.zip"),
        ("xlnet.zip", "tickets.csv"),
        ("new", "cache"),
        metrics("new"),
    ),
    "finetune_folds": Command(
        "scripts/finetune.py",
        ONE_TABLE | flags("--init=xlnet --folds=2"),
        ("xlnet", "tickets.csv"),
        ("new",),
        metrics("new/fold-1"),
    ),
    "finetune_as": Command(
        "scripts/finetune.py",
        flags(
            "--init=xlnet --settings_from=tuned --train=table.tsv --dev=table.tsv --model_dir=new --tgt_len=16 "
            "--batch_size=4 --train_steps=2 --warmup_steps=1 --nojit_compile --noeval_jit_compile"
        ),
        ("xlnet", "tuned", "table.tsv"),
        ("new",),
        metrics("new"),
    ),
    "replay": Command("scripts/replay_step.py", flags("--model_dir=half --data_dir=words --step=3"), ("half", "words")),
    "export": Command(
        "scripts/export_savedmodel.py",
        flags("--model_dir=model --export_dir=new --nojit_compile"),
        ("model",),
        ("new",),
        lambda folder: (folder / "new" / "sampling.json").read_text(),
    ),
    "export_xlnet": Command(
        "scripts/export_savedmodel.py",
        flags("--model_dir=xlnet --export_dir=new --nojit_compile --mem_len=4"),
        ("xlnet",),
        ("new",),
        lambda folder: (folder / "new" / "sampling.json").read_text(),
    ),
    "litert": Command(
        "scripts/export_savedmodel.py",
        flags("--model_dir=model --export_dir=new --litert --quantize=int8"),
        ("model",),
        ("new",),
        lambda folder: (folder / "new" / "tokens.json").read_text(),
    ),
    "export_huggingface": Command(
        "scripts/export_checkpoint.py", flags("--model_dir=model --export_dir=new"), ("model",), ("new",), files("new")
    ),
    "saved": Command(
        "scripts/continue_savedmodel.py",
        flags("--export_dir=saved --prompt=word1 --max_tokens=4 --temperature=0.5 --seed=1"),
        ("saved",),
        by_argparse=True,
        alone=True,
    ),
    "serve": Command(
        "tests/campaign/serve_once.py",
        flags(
            "--export_dir=saved --host=localhost --port=0 --max_sessions=2 --session_seconds=5.0 --max_requests=3 "
            "--memory_mb=50 --library_log=libraries.log --model_name=a"
        ),
        ("saved",),
        ("libraries.log",),
        by_argparse=True,
    ),
    "python": Command(
        "tests/campaign/speak_to.py",
        flags('--model_dir=model --call=score --text="a"'),
        ("model", "xlnet", "tuned", "answering", "labelling", "tagging"),
        by_hand=True,
    ),
    "aot": Command("evidence/compilers/aot_compile.py", flags("--preset=demo --topology=v5e:0x0")),
} | {
    f"import_{format}": Command(
        "scripts/import_checkpoint.py",
        more | flags(f"--format={re.sub('(?<=huggingface)_.*', '', format)} --source={format}{file} --model_dir=new"),
        (format,),
        ("new",),
        files("new"),
    )
    for format, file, more in (
        ("huggingface", "", flags("--dataset=text")),
        ("huggingface_xlnet", "", {}),
        ("huggingface_simple", "", {}),
        ("huggingface_labelling", "", {}),
        ("huggingface_tagging", "", {}),
        ("official_tf", "", IMPORTED),
        ("official_pytorch", "/model.pt", IMPORTED),
    )
}
"""By name. The flags of "aot" name no topology, so that a setting that is allowed is not compiled for minutes."""
