"""Not a test: starts examples/serve.py with the flags given, asks it once if it starts, and stops it.

So that the start of a server is a command that ends, as the others of the campaign.
"""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request


def main():
    script = __file__.replace("tests/campaign/serve_once.py", "examples/serve.py")
    with subprocess.Popen([sys.executable, script, *sys.argv[1:]], stdout=subprocess.PIPE, text=True) as process:
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
