"""Not a test: starts the server with the flags given, asks it once if it starts, and stops it.

So that the start of a server is a command that ends, as the others of the campaign.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request


def main():
    clone = __file__.replace("/tests/campaign/serve_once.py", "")
    command = [sys.executable, "-m", "serving", *sys.argv[1:]]
    environment = os.environ | {"PYTHONPATH": clone}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            if found := re.search(r"at (http://\S+:\d+)", process.stdout.readline()):
                data = json.dumps({"prompts": ["word1"], "max_tokens": 4}).encode()
                with urllib.request.urlopen(f"{found[1]}/generate", data, timeout=600) as answer:
                    print(answer.read().decode())
                process.send_signal(signal.SIGINT)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except urllib.error.HTTPError as error:
            print(f"status {error.code}: {error.read()}", file=sys.stderr)
            process.kill()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
