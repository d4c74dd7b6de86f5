r"""An HTTP server for an exported model, in plain TensorFlow and aiohttp: an example to start from.

    pip install '.[serve]'    # without txl_tf: pip install tensorflow tensorflow-text -r serving/requirements.txt
    txl export_savedmodel --model_dir=runs/demo --export_dir=exports/demo
    txl serve --export_dir=exports/demo --port=8080    # or python -m serving

http://localhost:8080/ is a page to play on. For programs:

    curl localhost:8080/generate -d '{"prompts": ["def main("], "max_tokens": 100, "top_p": 0.9, "stop": ["\n\n"]}'
    curl -N localhost:8080/stream -d '{"prompt": "def main(", "max_tokens": 5000}'  # a line of JSON for each piece
    curl localhost:8080/sampling                                          # the settings of sampling, their ranges
    curl localhost:8080/score -d '{"texts": ["import os", "import so"]}'
    curl localhost:8080/sessions -d '{}'                                  # answers {"session": ID}
    curl localhost:8080/sessions/ID -d '{"tokens": [100, 101], "top": 3}' # read tokens, see what comes next
    curl -X DELETE localhost:8080/sessions/ID

An exported XLNet has these routes, too, though it was not trained to continue texts, and two of its own:

    curl localhost:8080/fill -d '{"texts": ["The capital of France is ____ ."], "top": 3, "order": "confident"}'
    curl localhost:8080/encode -d '{"texts": ["A question?"], "second": ["A passage."], "pool": "mean"}'

A fine-tuned XLNet has the route of its task:

    curl localhost:8080/classify -d '{"texts": ["A fine film.", "A dull one."]}'     # "second": texts of pairs
    curl localhost:8080/label -d '{"texts": ["A fine film, but long."]}'              # any number of labels
    curl localhost:8080/regress -d '{"texts": ["A man sings."], "second": ["A man is singing."]}'
    curl localhost:8080/answer -d '{"questions": ["Where does it rain?"], "contexts": ["It rains in Spain."]}'
    curl localhost:8080/tag -d '{"texts": ["Anna Berg flew to Rome."]}'                # names in texts
    curl localhost:8080/choose -d '{"articles": ["It rains."], "questions": ["It is _ ."], "options": [["wet", "dry"]]}'

Programs that ask OpenAI's completions, or TensorFlow Serving, can ask this server, too:

    curl localhost:8080/v1/completions -d '{"prompt": "def main(", "max_tokens": 100, "seed": 1, "logprobs": 2}'
    curl localhost:8080/v1/models/demo:predict -d '{"signature_name": "score", "instances": ["import os"]}'

Every server has /live, /ready and /metrics. serving/README.md describes the answers, limits, metrics and the log.

TensorFlow Serving itself takes the same SavedModel, in a folder named after its version. We have not run this: subword
vocabularies need a build of it with the ops of tensorflow-text, which we do not have (other vocabularies do not):

    txl export_savedmodel --model_dir=runs/demo --export_dir=exports/demo/1
    tensorflow_model_server --rest_api_port=8501 --model_name=demo --model_base_path=$PWD/exports/demo
    curl localhost:8501/v1/models/demo:predict -d '{"signature_name": "score", "inputs": {"texts": ["import os"]}}'

There the signature `generate` needs all of its inputs, also every setting of sampling: the README.md in the export
lists them with the values that change nothing.
"""

import argparse
import os
import socket
import sys

from serving.access import Access, check_origin, is_loopback, read_token
from serving.errors import StartError, one_line
from serving.limits import FLAGS, Limits
from serving.terminal import (
    divert_libraries,
    leave_when_interrupted,
    log_json_lines,
    open_what_is_closed,
    own_stderr,
)


def main():
    """Serves until interrupted."""
    open_what_is_closed()
    args = parse_arguments()
    leave_when_interrupted()
    try:
        limits = Limits(**{name: getattr(args, name) for name in FLAGS})
        sockets = listen(args.host, args.port)  # first, so that a taken port is reported before TensorFlow loads
        access = access_of(args, sockets)
        own_stderr()
        try:
            divert_libraries(args.library_log)
        except OSError as error:
            raise StartError(f"--library_log: {one_line(error)}") from None
        import tensorflow_text  # noqa: F401 (registers the ops of subword vocabularies)

        from serving.running import serve
        from serving.service import Service

        log_json_lines()
        serve(Service(args.export_dir, limits, model_name=args.model_name), sockets, access)
    except ModuleNotFoundError as error:
        if error.name not in ("aiohttp", "prometheus_client", "tensorflow_text"):
            raise
        sys.exit(f"error: the server needs the package {error.name}: run python -m pip install 'txl_tf[serve]'")
    except StartError as error:
        sys.exit(f"error: {error}")


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message):
        """Ends with status 2."""
        self.exit(2, f"error: {message} (--help lists the flags)\n")


def model_name(value):
    """A name that can stand in an address."""
    if not value or set(value) & set("/:"):
        raise argparse.ArgumentTypeError(f"{value!r} must be a name without / and :")
    return text(value)


def parse_arguments():
    """The flags."""
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--export_dir", required=True, type=text, help="what scripts/export_savedmodel.py wrote")
    parser.add_argument(
        "--model_name",
        type=model_name,
        help="in /v1/models/NAME and in OpenAI's protocol [the folder's name; if that is a version, such as 1, the "
        "name of the folder above it]",
    )
    parser.add_argument("--host", type=text, default="127.0.0.1", help="address to listen on [127.0.0.1]")
    parser.add_argument("--port", type=int, default=8080, help="0: any that is free [8080]")
    parser.add_argument(
        "--token_file",
        type=text,
        metavar="FILE",
        help="a file with a token that requests must send as `Authorization: Bearer TOKEN`; the page asks for it. "
        "If other machines can reach the server, this or --open_to_all is required",
    )
    parser.add_argument("--open_to_all", action="store_true", help="let every machine that can reach the server use it")
    parser.add_argument(
        "--allow_origin",
        type=text,
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of another origin, such as https://example.org, use the server from a browser; repeatable",
    )
    for name, about in FLAGS.items():
        default = getattr(Limits, name)
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{about} [{default:g}]")
    parser.add_argument(
        "--library_log",
        type=text,
        metavar="FILE",
        help="a file to append messages of TensorFlow and other libraries to; by default they go to a temporary file, "
        "which a crash or a traceback names, and which is otherwise deleted at the end",
    )
    return parser.parse_args()


def access_of(args, sockets):
    """The Access for these flags.

    Raises:
        StartError: other machines can reach the server, and no flag says who may use it; or a wrong flag.
    """
    loopback = all(is_loopback(one.getsockname()[0]) for one in sockets)
    if args.open_to_all and args.token_file:
        raise StartError("--open_to_all and --token_file contradict each other: give one of them")
    if not (loopback or args.open_to_all or args.token_file):
        raise StartError(
            f"--host={args.host}: other machines can reach the server; give --token_file=FILE with a token that they "
            "must send, or --open_to_all"
        )
    token = None if args.token_file is None else read_token(args.token_file)
    return Access(token, map(check_origin, args.allow_origin), loopback)


def text(argument):
    """An argument read as UTF-8 in every locale."""
    return os.fsencode(argument).decode()


def listen(host, port):
    """Sockets, bound to all addresses of a host.

    Raises:
        StartError: there is no such host, or the port is not available.
    """
    if not host or not 0 <= port < 1 << 16:
        raise StartError(f"--host={host} --port={port}: give a host, and a port from 0 to 65535")
    sockets = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in found:
            if sockets:  # port 0: the same free port for all addresses
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            sockets.append(socket.create_server(address, family=family))
    except (OSError, ValueError) as error:  # ValueError: not a possible name
        for one in sockets:
            one.close()
        reason = (getattr(error, "strerror", None) or one_line(error)).partition(" (while")[0]
        raise StartError(f"cannot listen at --host={host} --port={port}: {reason}") from None
    return sockets


if __name__ == "__main__":
    main()
