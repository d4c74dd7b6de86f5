"""The cards that scripts/describe_model.py writes: what they say is so, their code runs, and nobody's file is lost."""

import base64
import html
import html.parser
import json
import pathlib
import re
import shutil

import processes
import pytest
import random_xlnet
import tuned_models

from txl_tf.data.tables.columns import Columns
from txl_tf.errors import InputError
from txl_tf.inference.generation import generator
from txl_tf.metrics.labelling import interval
from txl_tf.runs import model_card, model_dir
from txl_tf.runs.card_page import page_of

ROOT = pathlib.Path(__file__).parents[2]
TRAINED = ROOT / "tests" / "model_dir_ce09e14"
BESIDE = {"most_frequent_class": 0.5, "bag_of_tokens": 0.625}
DEV = [
    {"step": 5, "loss": 0.9, "error": 0.5, "metrics": {"accuracy": 0.5, "macro_f1": 0.4}, "examples": 4},
    {
        "step": 10,
        "loss": 0.7,
        "error": 0.25,
        "metrics": {"accuracy": 0.75, "macro_f1": 0.7},
        "examples": 4,
        "baselines": BESIDE,
    },
    {
        "step": 15,
        "loss": 0.8,
        "error": 0.5,
        "metrics": {"accuracy": 0.5, "macro_f1": 0.3},
        "collapsed": "all are b",
        "baselines": BESIDE,
    },
]


@pytest.fixture(scope="module")
def model_dirs(tmp_path_factory):
    """A model_dir of each kind, by task; that of the classifier has evaluations on dev."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(TRAINED / "plain", folder / "causal_lm")
    random_xlnet.write_model_dir(folder / "permutation_lm", random_xlnet.with_prefix())
    tuned_models.write_model_dir(folder / "classification", "classification", ("a|b", "b"), mem_len=8)
    tuned_models.write_model_dir(folder / "answering", "answering")
    facts = json.loads((folder / "classification" / model_dir.CORPUS_FILE).read_text())
    facts |= {"dataset": "tickets.csv", "examples": {"train": 3, "dev": 4}}
    (folder / "classification" / model_dir.CORPUS_FILE).write_text(json.dumps(facts))
    model_dir.write_columns(str(folder / "classification"), Columns(text_column="message", label_column="team"))
    lines = "".join(json.dumps(line) + "\n" for line in DEV)
    (folder / "classification" / model_dir.EVALUATIONS_FILE).write_text(lines)
    return folder


@pytest.fixture(scope="module")
def cards(model_dirs):
    return {path.name: model_card.describe_model(str(path)) for path in model_dirs.iterdir()}


def test_it_says_what_the_run_recorded(cards):
    text, picture = cards["causal_lm"].text, cards["causal_lm"].picture
    trained = model_dir.load_trained(str(TRAINED / "plain"))
    assert f"{trained.model.count_params():,} parameters" in text and "after 200 updates" in text
    config = trained.config
    assert f"| d_inner | {config.model.d_inner} |" in text
    assert f"| learning_rate | {config.train.learning_rate:.3g} |" in text
    assert "bits per" not in text and "| 200 | bpc 1.383, loss 0.9586, 724 tokens, mem_len 12 |" in text
    assert picture.startswith(b"\x89PNG") and f"({model_card.PICTURE_FILE})" in text


def test_the_best_and_the_last_evaluation_of_a_classifier(cards):
    text = cards["classification"].text
    assert "| 10 | loss 0.7, accuracy 0.75, macro_f1 0.7, 4 examples |" in text
    assert "| 15 | loss 0.8, accuracy 0.5, macro_f1 0.3 |" in text
    assert r"| classes | 2: a\|b, b |" in text and "reports a collapse: all are b" in text
    assert cards["classification"].picture and cards["answering"].picture is None
    assert "Learning curve" not in cards["answering"].text
    assert "a memory of" not in text and "tokens, and a memory of 8 before it." in cards["permutation_lm"].text
    assert "mem_len" not in text and "| mem_len | 8 |" in cards["permutation_lm"].text


def test_the_result_comes_first_with_what_it_is_worth(cards):
    text = cards["classification"].text
    titles = re.findall("^## (.*)", text, re.MULTILINE)
    assert titles == ["Result", "How to use it", "Limits", "Learning curve", "Data", "Sizes", "Recipe", "Weights"]
    result = text[text.index("## Result") :]
    assert "| question | team, from message |" in result
    assert "| rows | 3 of tickets.csv to learn from, 4 to evaluate on (dev) |" in result and "corpus" not in text
    low, high = interval(0.75, 4)
    assert (
        f"| result on dev | accuracy 75.0%, 95 % interval {low:.0%} to {high:.0%} (4 examples); "
        "the most frequent class alone 50.0%, a bag of tokens 62.5% |"
    ) in result
    assert not re.search(r"\d\.\d{5}", text)


def test_the_page_is_the_card_with_its_picture_inside(model_dirs, cards):
    """Nothing in it is a script, a tag of a text, or loaded from elsewhere."""
    folder = model_dirs / "classification"
    text = "a <script>alert(1)</script> ![x](https://example.org/x.png) [y](javascript:z) __init__ | *"
    (folder / "worst.csv").write_text(f'label,prediction,probability,loss,text\nb,a|b,0.9,2.3,"{text}"\n')
    page = page_of(model_card.describe_model(str(folder)))
    (folder / "worst.csv").unlink()
    found = _Page()
    found.feed(page)
    assert found.tags.isdisjoint({"script", "a", "iframe", "link"}) and found.tags >= {
        "table",
        "h2",
        "pre",
        "img",
        "li",
    }
    assert [base64.b64decode(one.partition("base64,")[2]) for one in found.pictures] == [
        cards["classification"].picture
    ]
    assert f"a|b (90.0%) instead of b, loss 2.300: {text}" in found.text
    for line in cards["classification"].text.splitlines():
        if line.startswith("| ") and not line.startswith("| |"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert all(re.sub("[`*]", "", html.unescape(cell)) in found.text for cell in cells), line


class _Page(html.parser.HTMLParser):
    """The tags, the text and the pictures of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.text, self.pictures = set(), "", []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.pictures += [value for name, value in attributes if name == "src"]

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("task", ["causal_lm", "permutation_lm", "classification", "answering"])
def test_its_code_runs_and_its_flags_are_there(task, cards, capsys, monkeypatch):
    monkeypatch.setattr(generator, "has_xla", lambda: False)  # to compile takes longer than all else
    (code,) = re.findall(r"```python\n(.*?)```", cards[task].text, re.DOTALL)
    exec(code, {})
    assert task == "permutation_lm" or capsys.readouterr().out
    commands = re.findall(r"^python (scripts/\w+\.py) (.*)", cards[task].text, re.MULTILINE)
    assert len(commands) >= 3
    defined = (ROOT / "scripts" / "command_line.py").read_text()
    for script, flags in commands:
        source = (ROOT / script).read_text() + defined
        for flag in re.findall(r"--(\w+)=", flags):
            assert f'"{flag}"' in source or flag == "temperature", (script, flag)


def test_an_installed_package_names_its_own_commands(model_dirs, monkeypatch):
    monkeypatch.setattr(model_card, "_INSTALLED", True)
    card = model_card.describe_model(str(model_dirs / "causal_lm")).text
    assert "\ntxl generate --model_dir=" in card and "\ntxl evaluate --model_dir=" in card and "scripts/" not in card


def test_only_its_own_unchanged_files_are_replaced(model_dirs, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model_dirs / "causal_lm", folder)
    script = ["scripts/describe_model.py", f"--model_dir={folder}"]
    (folder / "test.json").write_text('a line\n{"split": "test", "loss": 1.5, "bpc": 2.164, "step": 200}\n')
    for more in ([], [f"--results={folder}/test.json", f"--html={folder}/card.html"]):
        done = processes.run([*script, *more], cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        assert (folder / "README.md").read_text().partition("\n")[2] == done.stdout
        assert ("| test | 200 | bpc 2.164, loss 1.5 |" in done.stdout) == bool(more)
        assert ("no result on test data" in done.stdout) != bool(more)
    page = (folder / "card.html").read_bytes()
    done = processes.run([*script, f"--html={folder}/card.html"], cwd=ROOT)
    assert done.returncode and "card.html exists and would be overwritten" in done.stderr
    assert (folder / "card.html").read_bytes() == page and b"bpc 2.164" in page
    card = model_card.describe_model(str(folder))
    for name, content in (("README.md", b"mine\n"), ("learning_curve.png", b"\x89PNG mine")):
        written = (folder / name).read_bytes()
        for foreign in (content, written.replace(b"plain", b"plane") + b"and more", b""):
            if name == "learning_curve.png" and b"txl_tf" in foreign:
                continue
            (folder / name).write_bytes(foreign)
            with pytest.raises(InputError, match=f"{name} was .*would be overwritten: move it away"):
                model_card.write_card(str(folder), card)
            assert (folder / name).read_bytes() == foreign
        (folder / name).write_bytes(written)
    model_card.write_card(str(folder), card)


def test_a_model_of_bytes_shows_both_its_measures(model_dirs):
    result = {"split": "test", "loss": 1.5, "bpc": 2.164, "bits_per_byte": 2.171, "step": 200}
    card = model_card.describe_model(str(model_dirs / "causal_lm"), [result])
    assert "| test | 200 | bpc 2.164, bits_per_byte 2.171, loss 1.5 |" in card.text


def test_what_is_no_model_or_no_result(model_dirs, tmp_path):
    with pytest.raises(InputError, match=r"has no config\.json: give a trained model"):
        model_card.describe_model(str(tmp_path))
    for content in ("", "text\n", "[1]\n", '{"split": "test"}\n'):
        (tmp_path / "results").write_text(content)
        with pytest.raises(InputError, match=r"results.*give a file with the output"):
            model_card.read_results(str(tmp_path / "results"))
