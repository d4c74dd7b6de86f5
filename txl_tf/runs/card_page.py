"""A model card as one page of HTML, for those who open no Markdown; its picture and style are inside."""

from __future__ import annotations

import base64
import html

import markdown

from txl_tf.runs.model_card import PICTURE_FILE, Card

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1b1e23; font: 1rem/1.5 system-ui, sans-serif; }}
h2 {{ margin-top: 2.2rem; border-bottom: 1px solid #c9ced6; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin-bottom: 1rem; }}
th, td {{ border: 1px solid #c9ced6; padding: 0.25rem 0.6rem; font-variant-numeric: tabular-nums; }}
thead:not(:has(th:not(:empty))) {{ display: none; }}
pre {{ background: #f6f7f9; padding: 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere; }}
code {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.9em; }}
img {{ max-width: 100%; }}
li {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def page_of(card: Card) -> str:
    """The page of a card. Texts of the model's errors stay texts: no script runs, and nothing is loaded."""
    body = markdown.markdown(card.text, extensions=["tables", "fenced_code", "sane_lists"])
    if card.picture:
        picture = base64.b64encode(card.picture).decode()
        body = body.replace(f'src="{PICTURE_FILE}"', f'src="data:image/png;base64,{picture}"')
    title = card.text.partition("\n")[0].removeprefix("# ")
    return _PAGE.format(title=html.escape(html.unescape(title)), body=body)
