"""Asks a server for text, prints it as it comes, then prints its score. Needs only the standard library.

python -m serving --export_dir=exports/demo --port=8080
python examples/client.py http://localhost:8080 "def main("
"""

import argparse
import json
import urllib.request


def main():
    """Prints up to 200 tokens after the prompt, then the mean loss of a token of the whole text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", help="its address, as http://localhost:8080")
    parser.add_argument("prompt")
    args = parser.parse_args()
    text = args.prompt
    print(text, end="", flush=True)
    request = {"prompt": args.prompt, "max_tokens": 200, "top_p": 0.9, "seed": 1}
    for line in ask(args.server, "/stream", request):  # a line of JSON for each piece
        piece = json.loads(line).get("text", "")
        text += piece
        print(piece, end="", flush=True)
    score = json.load(ask(args.server, "/score", {"texts": [text]}))
    print(f"\nmean loss of a token: {-score['total'][0] / len(score['tokens'][0]):.3f} nats")


def ask(server, route, request):
    """The open response of a route, whose lines come as the server writes them."""
    body = json.dumps(request).encode()
    return urllib.request.urlopen(urllib.request.Request(server + route, data=body), timeout=600)


if __name__ == "__main__":
    main()
