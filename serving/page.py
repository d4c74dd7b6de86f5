"""The page to play on: its files, and the headers that browsers get with them."""

import pathlib

from aiohttp import web

FOLDER = pathlib.Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""The page runs only scripts of this server, talks only to it, and cannot be shown inside another page."""


def page_routes():
    """The routes of the page's files: index.html at /, the others under /page."""
    routes = []
    for path in sorted(FOLDER.iterdir()):
        place = "/" if path.name == "index.html" else f"/page/{path.name}"
        routes.append(web.get(place, _sender(path.read_bytes(), TYPES[path.suffix])))
    return routes


def _sender(data, kind):
    async def send(request):
        del request
        return web.Response(body=data, content_type=kind, charset="utf-8", headers=HEADERS)

    return send
