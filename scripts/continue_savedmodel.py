"""Continues a prompt with an exported SavedModel in plain TensorFlow, as a server does, without txl_tf.

python scripts/continue_savedmodel.py --export_dir=exports/demo --prompt="def main("
"""

import argparse
import json
import os
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export_dir", required=True, help="what scripts/export_savedmodel.py wrote")
    parser.add_argument("--prompt", required=True, help="the text to continue")
    parser.add_argument("--max_tokens", type=int, default=200, help="tokens to make")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the most likely token")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same text")
    args = parser.parse_args()

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the ops of subword vocabularies)

    try:
        generate = tf.saved_model.load(args.export_dir).signatures["generate"]
        with tf.io.gfile.GFile(tf.io.gfile.join(args.export_dir, "sampling.json")) as file:
            settings = json.load(file)
    except (OSError, KeyError, ValueError, tf.errors.NotFoundError) as error:
        sys.exit(f"error: {args.export_dir} is not an exported model: {' '.join(str(error).split())}")
    sampling = {setting["name"]: setting["default"] for setting in settings} | {"temperature": args.temperature}
    texts = generate(
        prompts=tf.constant([args.prompt]),
        max_tokens=tf.constant(args.max_tokens),
        seeds=tf.constant([args.seed]),
        stop=tf.constant([], tf.string),
        **{name: tf.constant(value) for name, value in sampling.items()},
    )["texts"]
    print(args.prompt + texts.numpy()[0].decode("utf-8", "replace"))
    if "txl_tf" in sys.modules:
        sys.exit("error: loading the SavedModel imported txl_tf: it does not stand alone")


if __name__ == "__main__":
    main()
