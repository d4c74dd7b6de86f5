"""The pictures of docs/figures/: they are what their programs draw, and what they claim is true of the model."""

import importlib
import pathlib
import re
import sys

import matplotlib
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.models.transformer_xl.config import Reach, TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL

FIGURES = pathlib.Path(__file__).parents[2] / "docs" / "figures"
NAMES = sorted(path.stem for path in FIGURES.glob("*.py") if path.stem != "drawing")


@pytest.fixture
def load(monkeypatch):
    """Imports a program of docs/figures/."""
    monkeypatch.syspath_prepend(str(FIGURES))
    with matplotlib.rc_context():  # the pictures' settings must not reach other tests
        yield importlib.import_module
    for name in [*NAMES, "drawing"]:
        sys.modules.pop(name, None)


def shown(svg):
    """The texts and the colours of a picture, without marks: where rounding puts these depends on the processor."""
    svg = re.sub("<use[^>]*>", "", svg)
    return re.findall(r"<text[^>]*>([^<]*)", svg), sorted(re.findall(r"fill: (var\S+?)[;\"]", svg))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_what_its_program_draws(load, name):
    texts, colours = shown((FIGURES / f"{name}.svg").read_text())
    assert len(texts) > 5 and len(colours) > 3
    assert (texts, colours) == shown(load("drawing").svg_of(load(name).draw()))


def test_every_picture_has_a_program_and_is_shown():
    pages = [*FIGURES.parent.glob("explanations/*.md"), FIGURES.parents[1] / "evidence" / "compilers" / "cycles.md"]
    text = "".join(page.read_text() for page in pages)
    assert {path.stem for path in FIGURES.glob("*.svg")} == set(NAMES)
    assert all(f"figures/{name}.svg)" in text for name in NAMES)


@pytest.mark.parametrize("m_len", [0, 4])
def test_the_last_output_depends_on_the_tokens_that_the_picture_of_recurrence_says(load, m_len):
    """Lane 0 has a text, lane i + 1 the same with another token i: which outputs differ."""
    recurrence = load("recurrence")
    length = recurrence.T * recurrence.SEGMENTS
    sizes = {"n_layer": recurrence.LAYERS, "d_model": 8, "d_embed": 8, "n_head": 2, "d_head": 4, "d_inner": 16}
    model = TransformerXL(TransformerXLConfig(vocab_size=5, mem_len=m_len, dtype="float64", init_std=0.5, **sizes))
    reach, mems = Reach(m_len, mem_init="empty"), None
    texts = np.zeros([length + 1, length], np.int32)
    texts[range(1, length + 1), range(length)] = 1
    for segment in np.split(texts, recurrence.SEGMENTS, axis=1):
        hidden, mems = model(tf.constant(segment), mems, reach=reach)
    outputs = hidden[:, -1].numpy()
    differs = (outputs[1:] != outputs[0]).any(axis=-1)
    np.testing.assert_array_equal(differs, recurrence.on_paths(recurrence.attention(m_len))[0])
