"""The static files of the web page, which are part of the package and contain no data of the application."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streams.web.answers import Refused

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def page_routes() -> list[Route]:
    """Return the routes of the page: ``/``, and the files of the page below ``/page``."""
    contents: dict[str, tuple[bytes, str]] = {}
    for file in files("streams.web").joinpath("page").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            contents[file.name] = file.read_bytes(), kind

    async def index(request: Request) -> Response:
        content, kind = contents["index.html"]
        # If all requests need the token, the page prompts the user for it.
        headers = {"www-authenticate": "Bearer"} if _lacks_token(request) else {}
        return Response(content, 401 if _lacks_token(request) else 200, headers, kind)

    async def part(request: Request) -> Response:
        file = contents.get(request.path_params["name"])
        if file is None:
            raise Refused(404, "NO_SUCH_PATH", "the page has no such file")
        return Response(file[0], media_type=file[1])

    return [Route("/", index), Route("/page/{name}", part)]


def _lacks_token(request: Request) -> bool:
    return bool(request.scope.get("streams.lacks_token"))
