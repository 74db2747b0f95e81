"""The server's endpoint for watched runs: POST /watch/ID/FILE?at=BYTE, or /watch/ID for whole lines.

It is there only where RL_LAB_WATCH_TOKEN is set, and takes nothing without that token. It is apart from the login,
which asks people.
"""

from __future__ import annotations

import asyncio
import hmac

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.watching.receiving import BODY_BYTES, TOKEN, Refused, receive, token
from labcore.watching.spool import asked, folder_of

WRONG_SECONDS = 1.0  # how long a wrong token waits for its answer


def routes() -> list[Route]:
    """The endpoint; none where no token is set, or where it is too short, which the page says."""
    try:
        there = bool(token()) and not read_only()
    except LabError:
        return []
    return [Route(path, take, methods=["POST"]) for path in ("/watch/{name}", "/watch/{name}/{file}")] if there else []


async def take(request: Request) -> Response:
    """Take a part of a file."""
    try:
        said = request.headers.get("authorization", "")
        if not hmac.compare_digest(said.encode(), f"Bearer {token()}".encode()):
            await asyncio.sleep(WRONG_SECONDS)
            raise Refused(401, f"The token is wrong: it must be that of {TOKEN} in the lab.")
        name, at = request.path_params["name"], request.query_params.get("at", "0")
        if not at.isdecimal() or len(at) > 15:
            raise Refused(400, "at must be the byte at which the lines belong.")
        size = await run_in_threadpool(receive, name, request.path_params.get("file", ""), int(at),
                                       await _body(request))
        found = asked(folder_of(name))
        return JSONResponse({"size": size, **({"asked": found} if found else {})})
    except Refused as error:
        return PlainTextResponse(str(error), error.status)
    except LabError as error:
        return PlainTextResponse(str(error), 400)


async def _body(request: Request) -> bytes:
    """The body. Raises Refused where it is too long, before all of it is read."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES:
            raise Refused(413, f"A request has at most {BODY_BYTES // 2**20} MB: send the lines in several.")
        parts.append(part)
    return b"".join(parts)
