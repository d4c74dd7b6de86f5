"""Continues a prompt with an exported SavedModel in plain TensorFlow, as a server does, without txl_tf.

python scripts/continue_savedmodel.py --export_dir=exports/demo --prompt="def main("
"""

import argparse
import json
import math
import os
import sys

import start_up

from serving import terminal


def main():
    start_up.write_utf8()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export_dir", required=True, type=text, help="what scripts/export_savedmodel.py wrote")
    parser.add_argument("--prompt", required=True, type=text, help="the text to continue")
    parser.add_argument("--max_tokens", type=int32, default=200, help="tokens to make")
    parser.add_argument("--temperature", type=finite, default=0.8, help="0: always the most likely token")
    parser.add_argument("--seed", type=int32, default=1, help="the same seed makes the same text")
    args = parser.parse_args()
    if not args.export_dir or args.max_tokens < 1 or args.temperature < 0:
        parser.error("--export_dir must not be empty, --max_tokens at least 1 and --temperature at least 0")

    terminal.divert_libraries()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the ops of subword vocabularies)
    from absl import logging

    logging.set_verbosity(logging.FATAL)  # or TensorFlow shows tracebacks for files that it cannot read

    try:
        made = continued(tf, args)
    except Exception as error:  # a damaged or foreign SavedModel can cause any error
        reason = " ".join(str(getattr(error, "message", error)).split())[:300]
        sys.exit(
            f"error: {args.export_dir} is not an exported model that continues texts ({type(error).__name__}: {reason})"
        )
    print(args.prompt + made)
    if "txl_tf" in sys.modules:
        sys.exit("error: loading the SavedModel imported txl_tf: it must work without")


def text(argument):
    """An argument read as UTF-8 in every locale."""
    return os.fsencode(argument).decode()


def int32(argument):
    """An argument as an integer that fits int32."""
    number = int(argument)
    if abs(number) >= 2**31:
        raise ValueError
    return number


def finite(argument):
    """An argument as a number that fits float32."""
    number = float(argument)
    if not math.isfinite(number) or abs(number) > 3e38:
        raise ValueError
    return number


def continued(tf, args):
    """The continuation of the prompt."""
    if "://" not in args.export_dir:
        files = [os.path.join(folder, file) for folder, _, names in os.walk(args.export_dir) for file in names]
        if strange := [file for file in files if not os.path.isfile(file)]:
            raise FileNotFoundError(f"{strange[0]} is not a file")  # TensorFlow would wait for a pipe
    from serving import loading

    generate = loading.load(args.export_dir).signatures["generate"]
    with tf.io.gfile.GFile(tf.io.gfile.join(args.export_dir, "sampling.json")) as file:
        settings = json.load(file)
    sampling = {setting["name"]: setting["default"] for setting in settings} | {"temperature": args.temperature}
    texts = generate(
        prompts=tf.constant([args.prompt]),
        max_tokens=tf.constant(args.max_tokens),
        seeds=tf.constant([args.seed]),
        stop=tf.constant([], tf.string),
        **{name: tf.constant(value) for name, value in sampling.items()},
    )["texts"]
    return texts.numpy()[0].decode("utf-8", "replace")


if __name__ == "__main__":
    main()
