"""The page to play on: its files, what its requests are answered, and the page itself in a browser."""

import functools
import json
import pathlib
import re
import shlex
import subprocess
import time
import urllib.error
import urllib.request

import browser
import numpy as np
import pytest
import random_xlnet
import server
import tuned_models

from serving.access import Access
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.inference.causal.left_to_right import LeftToRightXLNet
from txl_tf.inference.export import export_trained
from txl_tf.inference.generating_xlnet import GeneratingXLNet
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.runs.model_dir import load_trained

pytestmark = pytest.mark.usefixtures("loaded_once")

PAGE = pathlib.Path(__file__).parents[2] / "serving" / "page"
TEXT = "for i in range(9):\n    print(i, 'é')\n" * 4


@pytest.fixture(scope="module")
def served(byte_export):
    with server.started(byte_export, answer_values=3 * 20 * 300) as served:
        yield served


@pytest.fixture
def call(served):
    return functools.partial(server.call, served.address)


def stream(address, request):
    """The lines of a stream."""
    with urllib.request.urlopen(address + "/stream", json.dumps(request).encode(), timeout=120) as answer:
        return [json.loads(line) for line in answer]


@pytest.fixture(scope="module")
def log_probs(plain_model):
    """log_probs(tokens) -> [n, V], of what follows each token in a text, where every query sees the same window."""
    reach = plain_model.generator.decoder.reach

    def of(tokens):
        hidden, _ = plain_model.model(np.array([tokens], np.int32), reach=reach)
        return plain_model.model.log_prob(hidden).numpy()[0]

    return of


def test_files_have_types_and_headers_and_a_page_that_is_complete(served):
    sent = {}
    for path in PAGE.iterdir():
        place = "/" if path.name == "index.html" else f"/page/{path.name}"
        with urllib.request.urlopen(served.address + place, timeout=60) as answer:
            sent[path.name] = answer.read().decode()
            assert (
                answer.headers.get_content_type()
                == {
                    ".html": "text/html",
                    ".css": "text/css",
                    ".js": "text/javascript",
                    ".svg": "image/svg+xml",
                }[path.suffix]
            )
            policy = answer.headers["Content-Security-Policy"]
            assert set(re.findall(r"'[^']*'|https?:|\*|data:", policy)) == {"'self'", "'none'"}
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    code = "".join(text for name, text in sent.items() if name.endswith(".js"))
    wanted = set(re.findall(r'(?:src|href)="/page/([^"]*)"', sent["index.html"]))
    wanted |= set(re.findall(r'from "\./([^"]*)"', code))
    assert wanted | {"index.html"} == set(sent)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", "".join(sent.values()))
    assert not re.search(r"\son\w+=|\sstyle=|<script>", sent["index.html"])  # which the policy would not run
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(served.address + "/page/../serve.py")


def test_every_route_of_the_page_exists(served):
    code = "".join(path.read_text() for path in PAGE.glob("*.js"))
    routes = set(re.findall(r'"(/\w+)"', code))
    assert {"/model", "/sampling", "/stream", "/score", "/fill", "/classify"} <= routes
    known = {resource.canonical for resource in served.running._runner.app.router.resources()}
    assert routes <= known


def test_the_model_says_what_it_can(call):
    assert call("/model", method="GET") == (
        200,
        {
            "title": "a Transformer-XL",
            "name": "model",
            "step": None,
            "routes": [
                *("/sampling", "/generate", "/stream", "/sessions"),
                *("/v1/completions", "/tokenize", "/detokenize", "/tokenizer_info", "/score"),
            ],
            "pieces": True,
            "top": 20,
            "segment": 64,
            "max_tokens": 10_000,
        },
    )


def test_scores_come_with_pieces_and_alternatives(call, plain_model, log_probs):
    request = {"texts": [TEXT, "a", ""], "pieces": True}
    status, answer = call("/score", request | {"top": 5})
    assert status == 200
    plain = call("/score", request)[1]
    for text, tokens, pieces, found, top, without in zip(
        request["texts"], *(answer[name] for name in ("tokens", "pieces", "log_probs", "top")), plain["log_probs"],
        strict=True,
    ):  # fmt: skip
        assert "".join(pieces) == text and len(pieces) == len(tokens) == len(top)
        expected = log_probs([plain_model.vocabulary.start_token, *tokens])
        for i, token in enumerate(tokens):
            assert found[i] == pytest.approx(expected[i, token], abs=1e-4)
            assert found[i] == pytest.approx(without[i], abs=1e-4)
            best = np.sort(expected[i])[:-6:-1]
            for other, value in zip(top[i], best, strict=True):
                assert other["log_prob"] == pytest.approx(value, abs=1e-4)
                assert other["log_prob"] == pytest.approx(expected[i, other["token"]], abs=1e-4)
                name = bytes([other["token"]])
                assert other["text"] == (name.decode() if name.isascii() else repr(name)[2:-1])
    assert answer["total"] == pytest.approx(plain["total"], abs=1e-3)
    assert answer["pieces"][0][TEXT.encode().index("é".encode()) :][:2] == ["", "é"]


def test_without_memory_each_segment_is_a_text_of_its_own(call, plain_model, log_probs):
    status, answer = call("/score", {"texts": [TEXT, "short"], "memory": False})
    assert status == 200
    tokens = [plain_model.vocabulary.start_token, *answer["tokens"][0]]
    assert len(tokens) > 2 * 64
    expected = np.concatenate([log_probs(tokens[begin : begin + 64]) for begin in range(0, len(tokens) - 1, 64)])
    np.testing.assert_allclose(
        answer["log_probs"][0], [row[token] for row, token in zip(expected, tokens[1:], strict=False)], atol=1e-4
    )
    with_memory = call("/score", {"texts": [TEXT, "short"]})[1]
    assert answer["log_probs"][0][:64] == pytest.approx(with_memory["log_probs"][0][:64], abs=1e-4)
    assert abs(answer["total"][0] - with_memory["total"][0]) > 0.1
    assert answer["total"][1] == pytest.approx(with_memory["total"][1], abs=1e-4)


@pytest.mark.parametrize("prompt", ["", "x" * 130])
def test_a_stream_comes_with_its_tokens(served, plain_model, log_probs, prompt):
    request = {"prompt": prompt, "max_tokens": 40, "seed": 3, "top_p": 0.9}
    lines = stream(served.address, request | {"top": 3})
    tokens = [token for line in lines for token in line["tokens"]]
    assert "".join(line["text"] for line in lines) == plain_model.generate(prompt, 40, seed=3, top_p=0.9)
    assert all("".join(token["text"] for token in line["tokens"]) == line["text"] for line in lines)
    ids = [token["token"] for token in tokens]
    before = plain_model.vocabulary.encode(prompt).tolist() or [plain_model.vocabulary.start_token]
    expected = log_probs([*before, *ids])[len(before) - 1 : -1]
    assert [token["log_prob"] for token in tokens] == pytest.approx(expected[np.arange(40), ids].tolist(), abs=1e-4)
    for token, row in zip(tokens, expected, strict=True):
        assert [other["log_prob"] for other in token["top"]] == pytest.approx(np.sort(row)[:-4:-1].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("path", "request_", "status", "reason"),
    [
        ("/score", {"texts": ["a"], "top": 21}, 400, "top must be from 0 to 20"),
        ("/score", {"texts": ["a"], "memory": 0}, 400, "memory must be true or false"),
        ("/score", {"texts": ["a"], "pieces": "yes"}, 400, "pieces must be true or false"),
        ("/score", {"texts": ["a" * 200, "a" * 101], "top": 20}, 413, "the answer would have 18,060 values"),
        ("/stream", {"prompt": "a", "top": -1}, 400, "top must be from 0 to 20"),
    ],
)
def test_wrong_requests_get_a_reason(call, path, request_, status, reason):
    found, answer = call(path, request_)
    assert found == status and reason in answer["error"]


def test_an_older_export_has_no_alternatives(served, call, monkeypatch):
    monkeypatch.setattr(served.service.model, "segment", 0)
    monkeypatch.setattr(served.service.model, "rates", False)
    assert call("/model", method="GET")[1]["top"] == 0
    for path, request in (
        ("/stream", {"prompt": "a", "top": 1}),
        ("/score", {"texts": ["a"], "memory": False}),
        ("/score", {"texts": ["a"], "top": 1}),
    ):
        status, answer = call(path, request)
        assert status == 400 and "export it again" in answer["error"]


@pytest.mark.slow
def test_a_text_is_written_stopped_and_scored_in_a_browser(served, plain_model, tmp_path):
    with browser.opened(served.address, tmp_path) as page:
        page.wait_for("#about", "The server has")
        assert page.texts("[role=tab]") == ["Write", "Score"]
        page.type("#prompt", "def f(é", clear=True)
        page.click("summary")
        for name, value in (("max_tokens", 40), ("seed", 3), ("top_p", 0.9)):
            page.type(f"#setting-{name}", value, clear=True)
        page.click("#start")
        assert "40 tokens" in page.wait_for("#write .status", "Done")
        text = plain_model.generate("def f(é", 40, seed=3, top_p=0.9)
        assert page.content("#write .tokens") == text and page.content("#write .given") == "def f(é"
        page.focus("#write .token")
        page.press("ArrowRight")
        assert page.active()["dataset"] == "1"
        assert "bits of surprisal" in page.content("#card") and len(page.texts("#card tr")) == 8
        page.press("Escape")
        assert not page.texts("#card p")[0]  # hidden

        page.type("#setting-top_p", 7, clear=True)
        page.click("#start")
        assert page.wait_for("#write .error", "top_p must be above 0") and not page.texts("#write .status")[0]
        page.type("#setting-top_p", 1, clear=True)
        page.type("#setting-max_tokens", 10_000, clear=True)
        page.click("#start")
        page.wait_for("#write .status", "Writing: 1")
        assert page.active()["id"] == "stop"
        page.press("Enter")
        assert "Stopped" in page.wait_for("#write .status", "Stopped") and page.active()["id"] == "start"
        end = time.monotonic() + 20
        while served.service.admission.inside:
            assert time.monotonic() < end
            time.sleep(0.05)

        page.focus("#tab-write")
        page.press("ArrowRight")
        assert page.active()["id"] == "tab-score"
        page.type("#text", TEXT)
        page.press("Control+Enter")
        page.wait_for("#score dd", str(len(TEXT.encode())))
        assert page.content("#score .tokens") == TEXT
        mean = -plain_model.score(TEXT).total / len(TEXT.encode()) / np.log(2)
        assert f"{mean:.3f}" in page.texts("#score dd")
        page.click("input[value=memory]")
        assert page.script("return document.querySelector('#score .tokens').dataset.view") == "memory"
        assert page.script("return document.querySelectorAll('#score .token.marked').length") > 0
        first = "return [...document.querySelectorAll('#score .token')].slice(0, 64)"
        assert not page.script(first + ".filter(token => token.classList.contains('marked')).length")
        assert page.errors() == ["400"]  # no policy was violated, and nothing was missing


@pytest.mark.slow
def test_the_page_asks_for_the_token(byte_export, tmp_path):
    def asked(page, answer, reason=""):
        """Answers the page's form, which gives the reason. answer: the text to type; None: the form is closed."""
        page.wait_for("#access[open] .error", reason)
        if answer is None:
            page.press("Escape")
        else:
            page.type("#token", answer)
            page.press("Enter")

    unknown = "The server does not know this token."
    token = "a-token-of-20-letters"
    with (
        server.running(byte_export, access=Access(token=token)) as address,
        browser.opened(address, tmp_path) as page,
    ):
        asked(page, "wrong: é")
        asked(page, None, unknown)
        page.wait_for("#failure", "answers only those who have its token. Load the page again to give it.")
        page.driver.refresh()
        asked(page, f" {token} ", unknown)
        page.wait_for("#about", "The server has a Transformer-XL")
        page.click("#tab-score")
        page.type("#text", "it's a text")
        page.press("Control+Enter")
        command = page.wait_for("#score pre", "curl ")
        assert '-H "Authorization: Bearer $TOKEN"' in command and token not in command and f"{address}/score" in command
        sent = shlex.split(command.replace("$TOKEN", token).splitlines()[0])[1:]
        done = subprocess.run(["curl", "-sS", *sent], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["pieces"] == [list("it's a text")]
        page.driver.refresh()  # the tab keeps it
        page.wait_for("#about", "The server has a Transformer-XL")
        assert page.content("#failure") == "" and set(page.errors()) == {"401"}


@pytest.mark.slow
def test_an_xlnet_fills_and_classifies_in_a_browser(tmp_path):
    vocabulary = random_xlnet.with_prefix(XLNetVocabulary)
    model = random_xlnet.random_xlnet(vocab_size=vocabulary.vocab_size)
    continuation = LeftToRightXLNet(model, vocabulary, jit_compile=False)
    GeneratingXLNet(continuation, lengths=(32,), jit_compile=False).save(str(tmp_path / "fill"))
    tuned_models.write_model_dir(tmp_path / "tuned", "classification", labels=("bad", "good"))
    trained = load_trained(str(tmp_path / "tuned"))
    export_trained(trained, str(tmp_path / "classify"), False, [{"text": "so one"}, {"question": "no field"}])
    with server.running(str(tmp_path / "fill")) as address, browser.opened(address, tmp_path) as page:
        page.wait_for("#about", "The server has")
        assert page.texts("[role=tab]") == ["Fill blanks", "Score", "Write"]
        page.type("#blanks", "the ____ River is ____*2 so", clear=True)
        page.press("Control+Enter")
        page.wait_for("#fill li", "likely")
        expected = FillIn(model, vocabulary, jit_compile=False).fill("the ____ River is ____*2 so", beam_size=8, top=5)
        assert [page.content(f"#fill li:nth-child({i + 1}) .text") for i in range(5)] == [
            f.text.strip() for f in expected
        ]
        page.type("#blanks", "the ____ River is", clear=True)
        page.type("#candidates", "so, a dash,one")
        page.press("Control+Enter")
        page.wait_for("#fill li:nth-child(3):last-child", "likely")
        ranked = FillIn(model, vocabulary, jit_compile=False).fill(
            "the ____ River is", candidates=["so", "a dash", "one"]
        )
        assert page.texts("#fill mark") == [f.pieces[1] for f in ranked]
        page.find("#candidates").clear()
        page.type("#blanks", "no blank", clear=True)
        page.press("Control+Enter")
        page.wait_for("#fill .error", "a text has no blank.")
        page.click("#tab-score")
        page.type("#text", "the River is")
        page.press("Control+Enter")
        assert page.wait_for("#score .tokens", "River") == "the River is"
        page.click("#tab-write")
        assert "not to continue texts" in page.content("#note")
        page.type("#prompt", "the River is", clear=True)
        page.click("summary")
        for name, value in (("max_tokens", 20), ("seed", 3)):
            page.type(f"#setting-{name}", value, clear=True)
        page.click("#start")
        page.wait_for("#write .status", "Done")
        assert page.content("#write .tokens") == continuation.generate("the River is", 20, seed=3)
        assert page.errors() == ["400"]
    with server.running(str(tmp_path / "classify")) as address, browser.opened(address, tmp_path) as page:
        page.wait_for("#about", "The server has")
        assert page.texts("[role=tab]") == ["Classify"] and page.texts("#inputs label") == ["Text"]  # without pairs
        assert page.texts(".examples button") == ["so one"]
        page.click(".examples button")
        page.wait_for("#task .bars", "good")
        assert sorted(page.texts("#task th")) == ["bad", "good"]
        shares = [float(text.rstrip(" %")) for text in page.texts("#task td:nth-child(2)")]
        assert sum(shares) == pytest.approx(100, abs=0.2) and shares[0] >= shares[1]
        assert page.errors() == []


@pytest.mark.slow
def test_names_are_marked_in_a_text_in_a_browser(tmp_path):
    tuned_models.write_model_dir(tmp_path / "tuned", "tagging", ("B-C", "B-A", "B-B"), 2)
    trained = load_trained(str(tmp_path / "tuned"))
    export_trained(trained, str(tmp_path / "tag"), jit_compile=False)
    text = "one \N{SNOWMAN} so the River, a dash one two three"
    with server.running(str(tmp_path / "tag")) as address, browser.opened(address, tmp_path) as page:
        answer = server.call(address, "/tag", {"texts": [text]})[1]
        (found,), (words,) = answer["entities"], answer["words"]
        assert found
        page.wait_for("#about", "The server has")
        assert page.texts("[role=tab]") == ["Tag"]
        page.type("#input-text", text)
        page.press("Control+Enter")
        page.wait_for("#task .text", "River")
        shown = [re.fullmatch(r"(.*) (\S+) ([\d.]+) %", mark).groups() for mark in page.texts("#task mark")]
        assert [one[:2] for one in shown] == [(text[one["begin"] : one["end"]], one["label"]) for one in found]
        sure = [
            100 * min(word["probability"] for word in words if one["begin"] <= word["begin"] < one["end"])
            for one in found
        ]
        assert [float(one[2]) for one in shown] == pytest.approx(sure, abs=0.06)
        assert len({one["label"] for one in found}) == len(page.texts("#task .kinds li")) > 1
        colours = page.script(
            "return [...document.querySelectorAll('mark')].map(one => getComputedStyle(one).backgroundColor)"
        )
        assert len(set(zip(colours, (one["label"] for one in found), strict=True))) == len(set(colours)) > 1
        assert page.errors() == []


@pytest.mark.slow
def test_the_threshold_is_drawn_and_pairs_have_a_second_text(tmp_path):
    tuned_models.write_model_dir(tmp_path / "tuned", "multi_label", ("bad", "good", "mixed"))
    trained = load_trained(str(tmp_path / "tuned"))
    export_trained(trained, str(tmp_path / "label"), False, [{"text": "so one", "text_b": "the River"}])
    about = json.loads((tmp_path / "label" / "model.json").read_text())
    assert about["pairs"] is False and "threshold" not in about  # it was not evaluated, nor trained
    (tmp_path / "label" / "model.json").write_text(json.dumps(about | {"pairs": True, "threshold": 0.25}))
    with server.running(str(tmp_path / "label")) as address, browser.opened(address, tmp_path) as page:
        page.wait_for("#about", "The server has")
        assert len(page.texts("#inputs label")) == 2
        page.click(".examples button")
        page.wait_for("#task caption", "those from 25.0 % on, at the line, are given")
        found = server.call(address, "/label", {"texts": ["so one"], "second": ["the River"]})[1]["probabilities"][0]
        shares = {name: float(text.rstrip(" %")) / 100 for name, text in zip(
            page.texts("#task th"), page.texts("#task td:nth-child(2)"), strict=True)}  # fmt: skip
        assert shares == pytest.approx(found, abs=1e-3)
        place = "const line = getComputedStyle(document.querySelector('.limited'), '::after').left; return line"
        cell = "return document.querySelector('td:has(.limited)').getBoundingClientRect().width"
        assert float(page.script(place).rstrip("px")) == pytest.approx(page.script(cell) / 4, abs=1)
        assert page.errors() == []
