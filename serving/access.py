"""Who may use the server: pages of allowed origins, and clients with the token."""

import hmac
import ipaddress
import urllib.parse

from serving.errors import RequestError, StartError, one_line

OPEN = ("/", "/page", "/live", "/ready")
"""First parts of paths that need no token: the page, which asks for it, and the checks whether the server runs."""
LEAST = 16
"""The least number of characters of a token."""


class Access:
    """Checks that a request may be answered.

    Args:
        token: to be sent as `Authorization: Bearer TOKEN`; None: none.
        origins: other origins whose pages may use the server, such as "https://example.org".
        loopback: whether only this machine can reach the server.
    """

    def __init__(self, token=None, origins=(), loopback=True):
        self._token, self._origins, self._loopback = token, frozenset(origins), loopback

    def check(self, request):
        """Raises RequestError for a request of another origin, or without the token."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins and not self._is_own(origin, request.host):
            raise RequestError(403, "a page of another origin asks: it needs --allow_origin when the server starts")
        if self._token is None or request.method == "OPTIONS" or first_part(request) in OPEN:
            return
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._token.encode())
        if kind.lower() != "bearer" or not right:
            reason = "send the server's token: Authorization: Bearer TOKEN"
            raise RequestError(401, reason, {"WWW-Authenticate": "Bearer"})

    def headers(self, request):
        """Headers with which a browser passes an answer on to a page of an allowed origin."""
        origin = request.headers.get("Origin")
        if origin not in self._origins:
            return {}
        allowed = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        if request.method == "OPTIONS":
            allowed["Access-Control-Allow-Methods"] = "GET, POST, DELETE"
            allowed["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
        return allowed

    def _is_own(self, origin, host):
        """Whether a request comes from this server's page. Names do not count: anyone's can lead to this machine."""
        if origin not in (f"http://{host}", f"https://{host}"):
            return False
        try:
            name = urllib.parse.urlsplit(origin).hostname
        except ValueError:  # such as http://[
            return False
        return name is not None and (not self._loopback or name == "localhost" or is_loopback(name))


def first_part(request):
    """The first part of a request's path, such as "/score"; a path such as that of `OPTIONS *` has none."""
    return "/" + request.path.partition("/")[2].partition("/")[0]


def is_loopback(address):
    """Whether only this machine can reach an address; false for names."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def read_token(path):
    """The token in a file.

    Raises:
        StartError: there is no such file, or no token in it.
    """
    try:
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise StartError(f"--token_file={one_line(path)} cannot be read: {reason}") from None
    if len(token) < LEAST or len(token.split()) != 1:
        raise StartError(
            f"--token_file={one_line(path)} must hold one word of at least {LEAST} characters: make one with "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


def check_origin(origin):
    """An origin as browsers write it; StartError if it is not one."""
    try:
        parts = urllib.parse.urlsplit(origin)
        right = parts.scheme in ("http", "https") and parts.hostname and origin == f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        right = False
    if not right:
        raise StartError(
            f"--allow_origin={origin and one_line(origin)} must be like https://example.org, without a path"
        )
    return origin
