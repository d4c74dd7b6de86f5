"""Which split a file's name says."""

import pathlib

import processes
import pytest

from txl_tf.data.text.splits import named_splits
from txl_tf.errors import InputError

ROOT = pathlib.Path(__file__).parents[3]


def splits(*names, **options):
    return named_splits(names, "/text", **options)


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "dev.txt", "test.txt"),
        ("train-1.txt", "val.txt", "test.txt"),
        ("training.txt", "validation.txt", "testing.txt"),
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        ("news.train.en", "news.dev.en", "news.test.en"),
        ("my_train_set.txt", "my_eval_set.txt", "my_TEST_set.txt"),
        ("train/a.txt", "valid/a.txt", "test/a.txt"),
        ("en/train/deep/a", "en/dev/deep/a", "en/test/b"),
    ],
)
def test_the_usual_names(names):
    assert splits(*names) == ["train", "valid", "test"]


def test_names_that_say_nothing():
    assert splits("a.txt", "contest.txt", "latest/constraint.txt", "development.txt", "myvalid.md") is None
    with pytest.raises(InputError, match="no files named for train and valid and test: add"):
        splits("a.txt", required=True)


def test_several_files_of_a_split_and_the_files_own_name_first():
    names = ("train_1", "train_2", "dev/x", "test/y", "test/train_3")
    assert splits(*names) == ["train", "train", "valid", "test", "train"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train.txt", "test.txt"), r"no files named for valid, only files such as train.txt and test.txt"),
        (("a.py", "b.py", "test_a.py"), r"no files named for train and valid, only files such as test_a.py"),
        (("train.txt", "valid.txt", "dev.txt", "test.txt"), r"valid.txt and dev.txt both claim .* valid"),
        (("train.txt", "train_dev.txt", "test.txt"), r"train_dev.txt names several splits \(dev, train\)"),
        (("train.txt", "dev.txt", "test.txt", "README"), r"README is not named for a split"),
    ],
)
def test_what_is_not_clear_is_refused_with_the_ways_out(names, message):
    with pytest.raises(InputError, match=message) as caught:
        splits(*names)
    assert "--splits=shares" in str(caught.value)


def prepare(folder, *flags, status=0):
    command = [
        "scripts/prepare_data.py",
        "--dataset=text",
        f"--source={folder}/text",
        f"--data_dir={folder}/data",
        *flags,
    ]
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == status, done.stderr
    return done


def test_held_out_text_is_not_trained_on(tmp_path):
    from txl_tf.data import lanes, manifest

    (tmp_path / "text").mkdir()
    for name in ("train", "dev", "test"):
        (tmp_path / "text" / f"{name}.txt").write_text(f"MARK{name} of this text\n" * 20)
    done = prepare(tmp_path)
    size = len("MARKdev of this text\n") * 20
    assert " ".join(done.stdout.splitlines()[2].split()) == (
        f"valid {size + 1} tokens {size} bytes of dev.txt"  # and the blank line that ends the file
    )
    corpus = manifest.load_corpus(str(tmp_path / "data"))
    for split, file in (("train", "train"), ("valid", "dev"), ("test", "test")):
        (batch, *_) = lanes.EvaluationLanes(corpus, split, 1, 500).batches().as_numpy_iterator()
        text = corpus.vocabulary.decode(batch[0][0])
        assert f"ARK{file}" in text and text.count("MARK") == text.count(f"MARK{file}")


def test_the_table_names_the_folders_of_splits(tmp_path):
    for folder in ("train", "valid", "test"):
        (tmp_path / "text" / folder).mkdir(parents=True)
        (tmp_path / "text" / folder / "1.txt").write_text("text\n" * 20)
    table = prepare(tmp_path).stdout.splitlines()[1:4]
    assert [line.split()[-1] for line in table] == ["train/1.txt", "valid/1.txt", "test/1.txt"]


def test_the_command_refuses_half_a_set_and_takes_shares_on_request(tmp_path):
    (tmp_path / "text").mkdir()
    for name in ("model", "test_model"):
        (tmp_path / "text" / f"{name}.py").write_text("x = 1\n" * 100)
    done = prepare(tmp_path, status=1)
    assert done.stderr.count("\n") == 1 and "test_model.py" in done.stderr and "--splits=shares" in done.stderr
    done = prepare(tmp_path, "--splits=shares")
    table, rule = done.stdout.splitlines()[-2:]
    assert "of 2 files: model.py, test_model.py" in table
    assert rule == "the last 5 % of every file is test, the 5 % before it valid"


def test_the_table_of_drawn_documents_has_files_and_bytes(tmp_path):
    (tmp_path / "text").mkdir()
    for name in ("a", "b"):
        (tmp_path / "text" / name).write_text("".join(f"{name} {i}\n\n" for i in range(100)))
    _, *table, rule = prepare(tmp_path, "--documents=blank_line").stdout.splitlines()
    assert all("bytes of 2 files: a, b" in line for line in table)
    tokens, sizes = ([int(line.split()[i].replace(",", "")) for line in table] for i in (1, 3))
    assert tokens == sizes and sum(sizes) == sum(path.stat().st_size for path in (tmp_path / "text").iterdir())
    assert rule == "every document is drawn: 90 % train, 5 % valid, 5 % test"
