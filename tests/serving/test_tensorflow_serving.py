"""TensorFlow Serving's requests, to models that serving/ does not know and to those that it does."""

import base64
import functools
import json

import numpy as np
import pytest
import server
import tensorflow as tf

from serving.errors import StartError
from serving.model import ServedModel

pytestmark = pytest.mark.usefixtures("loaded_once")


def half_plus_two(folder):
    """TensorFlow Serving's example: x / 2 + 2, written as a SavedModel of TensorFlow 1 as there; its folder."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="tf_example")
        parsed = v1.io.parse_example(examples, {"x": v1.io.FixedLenFeature([1], tf.float32)})
        a, b = (v1.get_variable(name, initializer=value) for name, value in (("a", 0.5), ("b", 2.0)))
        x = tf.identity(parsed["x"], name="x")
        y = tf.add(tf.multiply(a, x), b, name="y")
        info = v1.saved_model.utils.build_tensor_info
        build = v1.saved_model.signature_def_utils.build_signature_def
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={
                "serving_default": build({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
                "regress_x_to_y": build({"inputs": info(examples)}, {"outputs": info(y)}, "tensorflow/serving/regress"),
            },
        )
        builder.save()
    return folder


class Many(tf.Module):
    """A model with several signatures."""

    def __init__(self):
        super().__init__()
        self.two = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def words(self, texts):
        """Padded outputs, as wide as the longest text."""
        words = tf.strings.split(texts)
        return {"words": words.to_tensor("?"), "count": tf.cast(words.row_lengths(), tf.int32)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, "point"),
            tf.TensorSpec([None], tf.int32, "number"),
            tf.TensorSpec([None], tf.bool, "is_far"),
        ]
    )
    def scale(self, point, number, is_far):
        by = self.two * tf.cast(number, tf.float32) * tf.where(is_far, 10.0, 1.0)
        return {"point": point * by[:, None], "next": number + 1}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x"), tf.TensorSpec([], tf.float32, "by")])
    def multiply(self, x, by):
        return {"y": x * by * self.two / 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "image_bytes")])
    def reverse(self, image_bytes):
        numbers = tf.reverse(tf.io.decode_raw(image_bytes, tf.uint8, fixed_length=4), [1])
        reversed_ = tf.strings.reduce_join(
            tf.gather(tf.constant([bytes([i]) for i in range(256)]), tf.cast(numbers, tf.int32)), 1
        )
        return {"out_bytes": reversed_, "out": reversed_}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def total(self, x):
        return {"sum": tf.reduce_sum(x)[None] * self.two}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def positive(self, x):
        return {"y": tf.boolean_mask(x, x > 0) * self.two}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A function that asks a server of half_plus_two."""
    folder = half_plus_two(tmp_path_factory.mktemp("models") / "half_plus_two")
    with server.running(str(folder), warm_up=True) as address:
        yield functools.partial(server.call, address)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The signatures of Many, and a function that asks a server of it; its folder is its version."""
    model, folder = Many(), str(tmp_path_factory.mktemp("models") / "many" / "12")
    names = ("words", "scale", "multiply", "reverse", "total", "positive")
    tf.saved_model.save(model, folder, signatures={name: getattr(model, name) for name in names})
    with server.running(folder) as address:
        yield tf.saved_model.load(folder).signatures, functools.partial(server.call, address)


def test_the_requests_of_tensorflow_servings_page_get_its_answers(half):
    path = "/v1/models/half_plus_two"
    assert half(f"{path}:predict", {"instances": [1.0, 2.0, 5.0]}) == (200, {"predictions": [2.5, 3.0, 4.5]})
    assert half(f"{path}/versions/1:predict", {"instances": [1.0, 2.0, 5.0]}) == (
        200,
        {"predictions": [2.5, 3.0, 4.5]},
    )
    assert half(f"{path}:predict", {"instances": [[1.0], [2]]}) == (200, {"predictions": [[2.5], [3.0]]})
    assert half(f"{path}:predict", {"inputs": {"x": [[1.0]]}}) == (200, {"outputs": [[2.5]]})
    assert half(f"{path}:predict", {"signature_name": "", "inputs": [1.0]}) == (200, {"outputs": [2.5]})
    status = {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    assert half(f"{path}/versions/1", None, "GET") == (200, status)
    found = half(path, None, "GET")[1]
    assert found["id"] == "half_plus_two" and found | status == found
    found = half(f"{path}/metadata", None, "GET")[1]
    assert found["model_spec"] == {"name": "half_plus_two", "signature_name": "", "version": "1"}
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"] == {
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}], "unknown_rank": False},
        "name": "x:0",
    }


@pytest.mark.parametrize(
    ("path", "request_", "status", "reason"),
    [
        (":predict", {"instances": [1.0], "inputs": [1.0]}, 400, "give instances, which are rows, or inputs"),
        (":predict", {}, 400, "give instances, which are rows, or inputs"),
        (":predict", {"instances": []}, 400, "instances must be a list of rows, at least one"),
        (":predict", {"instances": 1.0}, 400, "instances must be a list of rows"),
        (":predict", {"inputs": []}, 400, "there must be at least one row"),
        (":predict", {"instances": ["1"]}, 400, "x must have values of type float32, not '1'"),
        (":predict", {"instances": [True]}, 400, "x must have values of type float32, not True"),
        (":predict", {"instances": [None]}, 400, "x must have values of type float32, not None"),
        (":predict", {"instances": [[1.0, 2.0]]}, 400, "x has the shape [1, 2] and must have [n, 1]"),
        (":predict", {"instances": [[1.0], [2.0, 3.0]]}, 400, "x has lists of different lengths beside each other"),
        (":predict", {"instances": [[1.0], 2.0]}, 400, "x has lists of different lengths beside each other"),
        (":predict", {"instances": [{"z": 1.0}]}, 400, "serving_default has no input 'z': it has x"),
        (":predict", {"instances": [{"x": 1.0}, {"z": 1.0}]}, 400, "all instances must have the same names"),
        (":predict", {"inputs": {}}, 400, "the input x is missing: serving_default needs x"),
        (":predict", {"instances": [1.0] * 1025}, 413, "the request has 1,025 entries"),
        (
            ":predict",
            {"signature_name": "none", "instances": [1]},
            400,
            "the model has no signature 'none': choose from",
        ),
        (":predict", {"signature_name": 1, "instances": [1]}, 400, "the model has no signature 1: choose from"),
        (":predict", {"examples": [1.0]}, 400, "'examples' is not a field of this request"),
        (":predict", {"signature_name": "regress_x_to_y", "inputs": [{"b64": "?"}]}, 400, "that is not base64"),
        (":predict", {"signature_name": "regress_x_to_y", "inputs": [{"b64": "YQ=="}]}, 400, "Could not parse example"),
        (":regress", {"examples": [{"x": 1.0}]}, 404, ":regress reads tf.Example records"),
        (":classify", {"examples": [{"x": 1.0}]}, 404, ":classify reads tf.Example records"),
        (":guess", {}, 404, ":guess is not known: use :predict"),
        ("/versions/2:predict", {"instances": [1.0]}, 404, "there is no version '2' of half_plus_two"),
        ("x:predict", {"instances": [1.0]}, 404, "there is no model 'half_plus_twox': the server has half_plus_two"),
    ],
)
def test_a_wrong_request_gets_one_sentence(half, path, request_, status, reason):
    found, answer = half(f"/v1/models/half_plus_two{path}", request_)
    assert found == status and reason in answer["error"] and "\n" not in answer["error"], answer
    assert half("/v1/models/half_plus_two:predict", {"instances": [1.0]}) == (200, {"predictions": [2.5]})


def test_rows_and_columns_by_name(many):
    signatures, call = many
    columns = {"point": [[1.0, 2.0], [-3.0, 0.5]], "number": [1, 7], "is_far": [False, True]}
    given = {name: tf.constant(column) for name, column in columns.items()}
    expected = {name: value.numpy().tolist() for name, value in signatures["scale"](**given).items()}
    path = "/v1/models/many/versions/12:predict"
    assert call(path, {"signature_name": "scale", "inputs": columns}) == (200, {"outputs": expected})
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found = call(path, {"signature_name": "scale", "instances": rows})[1]["predictions"]
    assert found == [dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)]
    shared = {"signature_name": "multiply", "inputs": {"x": [1.0, 2.0], "by": 3.0}}
    assert call(path, shared) == (200, {"outputs": [3.0, 6.0]})


def test_an_answer_in_several_calls_is_that_of_one(many):
    """Also if the outputs are padded to the width of the longest text, whichever call that is in."""
    signatures, call = many
    draw = np.random.default_rng(0)
    texts = [" ".join("ab" for _ in range(n)) for n in draw.integers(0, 9, 60)]
    for i in (0, 59):
        given = [*texts[:i], " ".join("long" * 12), *texts[i:]]
        expected = signatures["words"](tf.constant(given))
        found = call("/v1/models/many:predict", {"signature_name": "words", "inputs": {"texts": given}})[1]["outputs"]
        assert found["count"] == expected["count"].numpy().tolist()
        assert found["words"] == [[word.decode() for word in row] for row in expected["words"].numpy()]
    points = draw.normal(size=[50, 2]).astype(np.float32)
    columns = {"point": points.tolist(), "number": list(range(50)), "is_far": [i % 3 == 0 for i in range(50)]}
    found = call("/v1/models/many:predict", {"signature_name": "scale", "inputs": columns})[1]["outputs"]
    expected = signatures["scale"](**{name: tf.constant(column) for name, column in columns.items()})
    np.testing.assert_allclose(found["point"], expected["point"], rtol=1e-6)


def test_bytes_travel_in_base64(many):
    _, call = many
    request = {"signature_name": "reverse", "instances": [{"b64": "AQID/w=="}, "abcd"]}
    assert call("/v1/models/many:predict", request)[1]["predictions"] == [
        {"out_bytes": {"b64": "/wMCAQ=="}, "out": {"b64": "/wMCAQ=="}},
        {"out_bytes": {"b64": "ZGNiYQ=="}, "out": "dcba"},
    ]
    named = {"signature_name": "reverse", "instances": [{"image_bytes": {"b64": "YWJjZA=="}}]}
    assert call("/v1/models/many:predict", named)[1]["predictions"][0]["out"] == "dcba"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"signature_name": "multiply", "instances": [{"x": 1.0, "by": 2.0}]}, "the input by has no row for each"),
        ({"signature_name": "scale", "instances": [1.0]}, "scale has the inputs is_far, number, point: give an object"),
        ({"signature_name": "total", "inputs": [1.0, 2.0, 3.0]}, "the signature total has no row for each answer"),
        ({"signature_name": "positive", "inputs": [1.0, -2.0]}, "the outputs of positive have no row for each row"),
        (
            {"signature_name": "scale", "inputs": {"point": [[1, 2]], "number": [1, 2], "is_far": [True]}},
            "the inputs have different numbers of rows: {is_far: 1, number: 2, point: 1}",
        ),
        (
            {"signature_name": "scale", "inputs": {"point": [[1, 2]], "number": [1.5], "is_far": [True]}},
            "number must have values of type int32, not 1.5",
        ),
        (
            {"signature_name": "scale", "inputs": {"point": [[1, 2]], "number": [2**31], "is_far": [True]}},
            "number has 2147483648, which int32 cannot hold",
        ),
        (
            {"signature_name": "scale", "inputs": {"point": [[1, 2]], "number": [1], "is_far": [1]}},
            "is_far must have values of type bool, not 1",
        ),
        ({"signature_name": "words", "inputs": [1]}, "texts must be a string, not 1"),
        ({"instances": ["a"]}, "the model has no signature 'serving_default': choose from"),
    ],
)
def test_wrong_inputs_of_several_get_one_sentence(many, request_, reason):
    status, answer = many[1]("/v1/models/many:predict", request_)
    assert status == 400 and reason in answer["error"], answer


def test_a_folder_of_a_version_has_the_name_above_it(many):
    assert many[1]("/v1/models", None, "GET")[1]["data"][0]["id"] == "many"
    assert many[1]("/classify", {"texts": ["a"]})[1]["error"].endswith("the served model has /v1/models")


def test_a_name_can_be_given(tmp_path):
    model = ServedModel(str(half_plus_two(tmp_path / "3")), "other")
    assert (model.name, model.version, model.routes) == ("other", "3", ())


def test_a_savedmodel_without_signatures_is_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(StartError, match="it has no signatures"):
        ServedModel(str(tmp_path / "empty"))


def shown(text):
    """A text of an answer; one that is not UTF-8 comes as b64."""
    return text if isinstance(text, str) else base64.b64decode(text["b64"]).decode("utf-8", "replace")


def test_a_transformer_xl_is_asked_as_by_its_own_routes(byte_export, plain_model):
    with open(f"{byte_export}/sampling.json") as file:
        settings = {setting["name"]: setting["default"] for setting in json.load(file)}
    with server.running(byte_export, max_requests=2) as address:

        def ask(name, **given):
            return server.call(address, "/v1/models/model:predict", {"signature_name": name, **given})

        given = {"prompts": ["def f(", "x"], "max_tokens": 5, "seeds": [1, 2], "stop": [], **settings}
        status, answer = ask("generate", inputs=given)
        texts = plain_model.generate(["def f(", "x"], 5, seed=[1, 2])
        assert (status, list(map(shown, answer["outputs"]["texts"]))) == (200, texts)
        assert all(len(row) == 5 for row in answer["outputs"]["tokens"])
        end = next(letter for letter in texts[0] if letter.isascii())
        stopped = ask("generate", inputs=given | {"stop": [end]})[1]["outputs"]
        assert shown(stopped["texts"][0]) == texts[0].partition(end)[0]
        assert stopped["tokens"] == answer["outputs"]["tokens"]
        unseeded = {name: value for name, value in given.items() if name != "seeds"}
        assert "the input seeds is missing" in ask("generate", inputs=unseeded)[1]["error"]
        assert "send inputs, not instances" in ask("generate", instances=["a"])[1]["error"]
        total = ask("score", instances=["abc"])[1]["predictions"][0]["total"]
        assert total == pytest.approx(plain_model.score("abc").total, abs=1e-3)
        for name in ("step", "read", "write", "initial_cache"):
            status, answer = ask(name, inputs={})
            assert (status, answer["error"]) == (
                400,
                f"the signature {name} keeps a state between calls: use /sessions",
            )
