"""The rules of the code base that a reader relies on: who imports whom, and that every setting is used."""

import ast
import collections
import dataclasses
import importlib.metadata
import importlib.util
import itertools
import pathlib
import re
import subprocess
import sys

import pytest

from txl_tf import families
from txl_tf.settings import choices

ROOT = pathlib.Path(__file__).parents[1]
SOURCES = sorted((ROOT / "txl_tf").rglob("*.py"))
SCRIPTS = [path for folder in ("scripts", "evidence/*", "tpu") for path in sorted(ROOT.glob(f"{folder}/*.py"))]
PARTS_OF_SCRIPTS = sorted(ROOT.glob("evidence/*/*/*.py"))
STAND_ALONE = [
    *sorted((ROOT / "serving").rglob("*.py")),
    *(ROOT / "examples" / f"{name}.py" for name in ("client", "generate_litert", "whole_model")),
]
RUNS = "counted data devices errors families layers metrics models objectives ops progress runs settings storage tasks"
"""The parts that training and inference may import: the same ones, but never each other."""

ALLOWED = {
    "__init__": "api batch_predictor data devices errors finetuner inference layers models quiet settings trainer",
    "errors": "",
    "counted": "",
    "hashing": "",
    "progress": "",
    "quiet": "",
    "storage": "errors",
    "settings": "errors storage",
    "ops": "errors hashing",
    "layers": "hashing ops",
    "devices": "errors ops settings",
    "models": "devices errors layers ops settings",
    "data": "counted errors hashing progress quiet settings storage",
    "objectives": "data errors layers models ops settings",
    "metrics": "data errors",
    "tasks": "counted data errors metrics models objectives settings storage",
    "families": "data errors models objectives settings tasks",
    "runs": "counted data devices errors families metrics models settings storage",
    "training": f"{RUNS} hashing",
    "inference": f"{RUNS} hashing",
    "finetuner": f"{RUNS} inference published training",
    "api": "data devices errors families inference progress published quiet runs settings",
    "batch_predictor": "api data errors families inference published runs settings storage tasks",
    "trainer": "api data devices errors families inference runs settings training",
    "harness": "api errors families inference progress storage",
    "sklearn": "api data errors families finetuner storage",
    "published": "counted data devices errors families layers models progress runs settings storage tasks",
}
"""The parts that each part of txl_tf may import, besides itself.

settings <- layers <- models <- objectives <- tasks <- families <- {training, inference}.
"""


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def part(path):
    return path.relative_to(ROOT / "txl_tf").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    own = part(path)
    for name in imported(path):
        if name.startswith("txl_tf."):
            other = name.split(".")[1]
            assert other == own or other in ALLOWED[own].split(), f"{own} must not import {name}"
        assert not name.startswith("absl.flags") and name != "absl.app", "flags are for scripts alone"


@pytest.mark.parametrize("wing", ["causal", "xlnet", "tasks"])
def test_the_wings_of_inference_do_not_touch(wing):
    for path in (ROOT / "txl_tf" / "inference" / wing).glob("*.py"):
        for name in imported(path):
            shared = not re.match(r"txl_tf\.inference\.(causal|xlnet|tasks)\b", name)
            assert shared or name.split(".")[2] == wing, f"{path.name} must not import {name}"


@pytest.mark.parametrize("path", [*SCRIPTS, *PARTS_OF_SCRIPTS], ids=lambda path: path.name)
def test_no_script_imports_a_script(path):
    scripts = {script.stem for script in SCRIPTS if '__name__ == "__main__"' in script.read_text()}
    assert not scripts & set(imported(path))


def test_every_module_of_txl_tf_that_is_imported_is_there():
    """Also in functions, which import late, and in folders that few tests run."""
    for path in [path for folder in ("*", "*/*", "*/*/*", "*/*/*/*") for path in ROOT.glob(f"{folder}.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "txl_tf":
                place = ROOT.joinpath(*node.module.split("."))
                assert place.with_suffix(".py").exists() or place.is_dir(), f"{path} imports {node.module}"


def test_no_file_has_grown_too_long_or_is_called_utils():
    for path in [*SOURCES, *SCRIPTS, *PARTS_OF_SCRIPTS, *STAND_ALONE]:
        assert "utils" not in path.stem
        assert len(path.read_text().splitlines()) <= 420, path


def test_no_folder_holds_more_files_than_a_reader_can_survey():
    """A module counts where it lies; of the scripts, those that are commands count, since users type their names."""
    folders = collections.Counter(path.parent for path in [*SOURCES, *PARTS_OF_SCRIPTS, *STAND_ALONE])
    folders |= collections.Counter(path.parent for path in SCRIPTS if '__name__ == "__main__"' in path.read_text())
    assert folders and max(folders.values()) <= 18, folders.most_common(3)


def test_one_module_opens_what_tensorflow_finds_by_patterns():
    """A path that a user gives is taken literally: see txl_tf/storage/literal_paths.py."""
    globbing = re.compile(r"gfile\.glob|load_checkpoint|latest_checkpoint|NewCheckpointReader|saved_model\.load\(")
    users = {path.relative_to(ROOT).as_posix() for path in SOURCES if globbing.search(path.read_text())}
    assert users == {"txl_tf/storage/literal_paths.py"}


def test_only_the_door_of_ops_asks_what_a_program_is_for():
    """Equations name no device, compiler or size of hardware; implementations of operations do."""
    hardware = re.compile(r"\b(platform\.program|on_cpu|on_tpu|on_gpu|in_xla|TILE|LANES|RUNS|ROWS|XLA|oneDNN)\b")
    equations = [path for path in SOURCES if part(path) in ("layers", "objectives")]
    equations += [ROOT / "txl_tf/training/step.py"]
    for path in equations:
        assert not hardware.search(path.read_text()), path
    capability = re.compile(r"platform\.program|program\(\)|\.target\b|\b(on_\w*host|in_xla|LANES)\b")
    devices = re.compile(r"\b(XLA|oneDNN|[CGT]PUs?)\b")
    implementation = ROOT / "txl_tf/inference/generation/few_rows.py"
    for path in {*equations, *(path for path in SOURCES if part(path) in ("models", "inference"))} - {implementation}:
        assert not capability.search(path.read_text()), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                assert not devices.search(ast.get_docstring(node) or ""), f"{path}: {node}"
    asks = re.compile(r"\bprogram\(\)|list_logical_devices|TPUStrategy\)")
    askers = {path.relative_to(ROOT / "txl_tf").as_posix() for path in SOURCES if asks.search(path.read_text())}
    assert askers == {
        "devices/distribute.py",
        "devices/host_memory.py",
        "devices/collectives.py",
        "ops/platform.py",
        "training/peak.py",
    }
    for path in SOURCES:
        for function in functions_of(path) if part(path) == "layers" else ():
            documented = ast.get_docstring(function) is not None
            lines = function.end_lineno - function.lineno + 1
            if documented:
                lines -= function.body[0].end_lineno - function.body[0].lineno + 1
            assert lines <= 40, f"{path}: {function.name}"
    assert len(list((ROOT / "txl_tf/ops").glob("*.py"))) <= 18
    attention = functions_of(ROOT / "txl_tf/layers/attention.py")
    (read,) = (function for function in attention if function.name == "read")
    assert read.end_lineno - read.lineno + 1 <= 30


def functions_of(path):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize(
    ("walk", "most"),
    [
        ("From the training loop to the softmax", 9),
        ("From a prompt to the drawn token", 12),
        ("From a row of a CSV file to its class", 12),
        ("From a CoNLL file to its tags", 14),
    ],
)
def test_a_walk_is_short_and_each_file_calls_the_next(walk, most):
    page = (ROOT / "docs/architecture.md").read_text().split(f"## {walk}\n")[1]
    rows = re.findall(r"^\| \[.*?\]\(\.\./(.*?)\) \| (.*?) \| `(.*?)` \|$", page.split("\n## ")[0], re.MULTILINE)
    assert rows and len({file for file, *_ in rows}) <= most
    for file, functions, calls in rows:
        source = (ROOT / file).read_text()
        parts = {function.name: ast.get_source_segment(source, function) for function in functions_of(ROOT / file)}
        module = ast.parse(source)
        parts |= {one.name: ast.get_source_segment(source, one) for one in module.body if hasattr(one, "args")}
        for a_class in (node for node in ast.walk(module) if isinstance(node, ast.ClassDef)):
            methods = (node for node in a_class.body if isinstance(node, ast.FunctionDef))
            parts |= {f"{a_class.name}.{one.name}": ast.get_source_segment(source, one) for one in methods}
        names = re.findall(r"`([\w.]+)`", functions)
        for name, following in itertools.pairwise(names):
            assert following in parts[name], f"{file}: {name} does not name {following}"
        assert calls in parts[names[-1]], f"{file}: {names[-1]} does not call {calls}"


def test_the_heart_stays_small():
    """Attention reads as its formula, the door has few operations, and few of them have gradients of their own."""
    folders = {"layers", "models", "ops"}
    files = [path for path in SOURCES if part(path) in folders and path.parent.name != "fused"]
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(lines) <= 6550
    own = [line for path in SOURCES for line in path.read_text().splitlines() if line.strip() == "@custom_gradient"]
    assert len(own) <= 13
    assert len(functions_of(ROOT / "txl_tf/ops/__init__.py")) <= 14
    methods = {path.stem: {node.name: node for node in functions_of(path)} for path in files if part(path) == "ops"}
    attend = next(
        node
        for a_class in ast.parse((ROOT / "txl_tf/ops/attention.py").read_text()).body
        if isinstance(a_class, ast.ClassDef)
        for node in a_class.body
        if getattr(node, "name", "") == "attend"
    )
    assert attend.end_lineno - attend.lineno + 1 <= 20
    decisions = (ast.If, ast.IfExp, ast.For, ast.While, ast.BoolOp)
    assert sum(isinstance(node, decisions) for node in ast.walk(attend)) <= 6
    steps = {"attend", "attend_ring", "products", "position_scores", "weighted_values"}
    hooks = {"block_rows", "matmul", "sums_over_queries", "shift", "exponentials"}
    for device in ("cpu", "gpu", "fewer"):
        assert not steps & set(methods[device]), device
    used = {node.attr for name in steps for node in ast.walk(methods["attention"][name]) if is_own(node)}
    assert used - steps - {"weighted"} == hooks  # `weighted` is the formula, for float16


MANY = {("txl_tf/sklearn.py", "__init__")}
"""Functions with more than eight parameters: scikit-learn reads an estimator's from its signature."""


def test_functions_have_at_most_eight_parameters():
    for path in SOURCES:
        for function in functions_of(path):
            given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            names = [argument.arg for argument in given if argument.arg not in ("self", "cls")]
            place = (path.relative_to(ROOT).as_posix(), function.name)
            assert len(names) <= 8 or place in MANY, f"{path}: {function.name}"


def is_own(node):
    """Whether this is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def test_the_server_and_examples_stand_alone():
    for path in STAND_ALONE:
        assert not any(name.split(".")[0] == "txl_tf" for name in imported(path)), path


def test_choices_are_those_that_the_code_knows():
    """The flags take their choices from choices.py, which loads no TensorFlow; what is chosen is defined elsewhere."""
    from txl_tf.data.text.corpora import CORPORA
    from txl_tf.published.importing import FORMATS
    from txl_tf.runs.checkpoints import WEIGHT_PARTS

    assert tuple(CORPORA) == choices.CORPORA
    assert tuple(WEIGHT_PARTS) == choices.WEIGHTS
    assert tuple(FORMATS) == choices.IMPORT_FORMATS
    assert {preset.dataset for preset in families.presets().values()} <= set(choices.DATASETS)


def test_every_distribution_that_is_imported_is_required():
    """requirements.txt names what txl_tf imports, not only what happens to come with TensorFlow; extras have files."""
    distributions = importlib.metadata.packages_distributions()
    files = [
        (ROOT / f"requirements{name}.txt").read_text()
        for name in ("", "-beam", "-gpu", "-harness", "-sklearn", "-tables")
    ]
    required = {
        name.replace("-", "_").lower() for file in files for name in re.findall(r"^([\w-]+)", file, re.MULTILINE)
    }
    optional = {"apache_beam": ["apache-beam"], "jax": ["jax"], "lm_eval": ["lm_eval"], "sklearn": ["scikit-learn"]}
    distributions = optional | distributions  # these need not be installed
    distributions["tensorflow"] = ["tensorflow"]  # which may be tensorflow_tpu
    for path in SOURCES:
        for name in {name.split(".")[0] for name in imported(path)} - {"txl_tf", *sys.stdlib_module_names}:
            assert required & {one.replace("-", "_").lower() for one in distributions[name]}, f"{path}: {name}"


def test_commits_are_linted_as_make_lint_does():
    """The hooks of .pre-commit-config.yaml are the commands of `make lint`, with files in place of folders."""
    makefile = (ROOT / "Makefile").read_text()
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1].strip().splitlines()
    hooks = re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(hooks) == len(lint) == 5
    for hook, command in zip(hooks, lint, strict=True):
        assert f"{command.strip()} ".startswith(hook + " ")


GROUPS = {group for config in families.run_configs() for group in config.groups().values()}


@pytest.mark.parametrize("group", sorted(GROUPS, key=str), ids=lambda group: group.__name__)
def test_every_setting_is_read_somewhere(group):
    code = "\n".join(
        path.read_text() for path in SOURCES if not {"config", "presets", "__init__"} & {*path.parts, path.stem}
    )
    for field in dataclasses.fields(group):
        assert re.search(rf"""\.{field.name}\b|"{field.name}\"""", code), f"nothing reads {group}.{field.name}"


def test_the_tree_has_a_line_for_every_file():
    tree = re.search(r"```\n(txl_tf/.*?)```", (ROOT / "docs" / "tree.md").read_text(), re.DOTALL).group(1)
    named = collections.Counter(
        re.findall(r"([\w.-]+\.(?:py|ipynb|typed|sh|md|txt|html|css|js|svg|png|csv))(?!\w)", tree)
    )
    tracked = subprocess.run(
        ["git", "ls-files", "txl_tf", "scripts", "evidence", "serving", "examples", "tpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    listed = [pathlib.Path(name) for name in tracked.stdout.split()]
    evidence = {
        "lab",
        "results",
        "studies",
        "ready",
    }  # of their pages, numbers and models the tree has the folder alone
    files = collections.Counter(path.name for path in listed if path.suffix == ".py" or not evidence & {*path.parts})
    del files["__init__.py"]
    assert files and files <= named, f"the tree lacks {sorted(files - named)}"
    everything = {
        path.name
        for folder in ("txl_tf", "scripts", "evidence", "docs", "serving", "examples", "tpu", "tests")
        for path in (ROOT / folder).rglob("*")
    }
    assert set(named) <= everything | {path.name for path in ROOT.iterdir()}, "the tree names what is not there"


def test_the_tree_says_what_the_files_say_of_themselves():
    spec = importlib.util.spec_from_file_location("tree", ROOT / "docs/tree.py")
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    text = tree.PAGE.read_text()
    assert tree.page(text) == text, "run python docs/tree.py"


LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("*/*.md"), *ROOT.glob("docs/*/*.md")],
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(path):
    for link in LINK.findall(path.read_text().replace("\n", "")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        if anchor:
            titles = re.findall("^#+ (.*)", target.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], link


@pytest.mark.parametrize(
    ("page", "most"), [("README", 100), ("docs/fine_tuning", 180), ("docs/runs", 130), ("docs/architecture", 120)]
)
def test_a_page_that_many_read_is_short(page, most):
    """Tables do not count in architecture.md, which consists of them."""
    lines = (ROOT / f"{page}.md").read_text().splitlines()
    assert len([line for line in lines if not (page == "docs/architecture" and line.startswith("|"))]) <= most
