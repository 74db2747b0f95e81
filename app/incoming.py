"""The server's endpoint for watched runs: POST /watch/ID/FILE?at=BYTE, or /watch/ID for whole lines.

It exists only if RL_LAB_WATCH_TOKEN is set, and requires this token. It does not use the login of the pages.
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
from labcore.watch.converting.receiving import BODY_BYTES, TOKEN, Refused, receive, token
from labcore.watch.converting.spool import asked, folder_of

WRONG_SECONDS = 1.0  # delay of the response to a wrong token


def routes() -> list[Route]:
    """Return the endpoint's routes; none if no token is set, or if it is too short, which the page reports."""
    try:
        there = bool(token()) and not read_only()
    except LabError:
        return []
    return [Route(path, take, methods=["POST"]) for path in ("/watch/{name}", "/watch/{name}/{file}")] if there else []


async def take(request: Request) -> Response:
    """Receive a part of a file."""
    try:
        said = request.headers.get("authorization", "")
        if not hmac.compare_digest(said.encode(), f"Bearer {token()}".encode()):
            await asyncio.sleep(WRONG_SECONDS)
            raise Refused(401, f"The token is wrong: send the value of {TOKEN} in the lab.")
        name, at = request.path_params["name"], request.query_params.get("at", "0")
        if not at.isdecimal() or len(at) > 15:
            raise Refused(400, "`at` must be the byte offset of the lines in the file.")
        size = await run_in_threadpool(receive, name, request.path_params.get("file", ""), int(at),
                                       await _body(request))
        found = asked(folder_of(name))
        return JSONResponse({"size": size, **({"asked": found} if found else {})})
    except Refused as error:
        return PlainTextResponse(str(error), error.status)
    except LabError as error:
        return PlainTextResponse(str(error), 400)


async def _body(request: Request) -> bytes:
    """Read the body. Raises Refused as soon as it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES:
            raise Refused(413, f"A request has at most {BODY_BYTES // 2**20} MB: split the lines.")
        parts.append(part)
    return b"".join(parts)
