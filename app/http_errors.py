"""Every error of an HTTP route as the OpenAI API's JSON: ``{"error": {message, type, code, param}}``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as Unrouted

from app.access.auth import error_body
from app.limits.memory_budget import MemoryFull
from app.limits.quotas import QuotaExceeded
from app.media.audio import MediaError
from app.refusal import Closed, Refusal
from engine import ContextOverflow, EngineError, Overloaded, RequestError, StageUnavailable, Stalled

RETRY_AFTER_S = "5"


class HttpRefusal(HTTPException):
    """A request that can't be served: the status, the API's code for it, and the field at fault if there is one."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(status, message)
        self.code = code
        self.param = param


class ErrorFields(BaseModel):
    message: str
    type: str
    code: str
    param: str | None


class ErrorBody(BaseModel):
    error: ErrorFields
    request_id: str


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request can't be served as asked; `param` names the field."},
    "5XX": {
        "model": ErrorBody,
        "description": "The server failed, or has no room; 503 says when to try again; 504: no progress in time.",
    },
}
"""Answers that a route may give besides its own, as OpenAPI has them."""

ERRORS = (HttpRefusal, Closed, Refusal, MediaError, MemoryFull, QuotaExceeded, EngineError)
"""Errors that a route may raise for a reason of its own; all of them become the API's JSON."""


def refusal_of(error: Exception) -> HttpRefusal:
    """Any of ERRORS as HTTP has it."""
    match error:
        case HttpRefusal():
            return error
        case Closed(code=code, status=status):
            return HttpRefusal(status, code, str(error))
        case Refusal(code=code, param=param):
            return HttpRefusal(400, code, str(error), param)
        case MediaError():
            return HttpRefusal(400, "invalid_value", f"The media can't be taken: {error}.")
        case MemoryFull(code=code):
            return HttpRefusal(503, code, str(error))
        case QuotaExceeded(code=code):
            return HttpRefusal(429, code, str(error))
        case ContextOverflow():
            return HttpRefusal(400, "context_length_exceeded", str(error))
        case RequestError(code=code):
            return HttpRefusal(400, code, str(error))
        case Overloaded(code=code) | StageUnavailable(code=code):
            return HttpRefusal(503, code, str(error))
        case Stalled(code=code):
            return HttpRefusal(504, code, str(error))
        case _:
            return HttpRefusal(500, getattr(error, "code", "server_error"), str(error))


def body_of(refusal: HttpRefusal) -> dict[str, Any]:
    """The JSON of a refusal."""
    return error_body(refusal.status_code, refusal.code, refusal.detail, refusal.param)


def add_errors(app: FastAPI) -> None:
    """Answer in one shape, whatever a route refuses with."""
    for kind in ERRORS:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Unrouted, _unrouted)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    return response_of(refusal_of(error))


def response_of(refusal: HttpRefusal) -> JSONResponse:
    """The whole answer to a request that is refused before it began."""
    headers = {"retry-after": RETRY_AFTER_S} if refusal.status_code in (429, 503) else None
    return JSONResponse(body_of(refusal), refusal.status_code, headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """The deepest mistake of a body, with its path: where a field may be of several kinds, that is in the kind meant.

    What was sent is not repeated, but for the word that names a kind.
    """
    known = cast("RequestValidationError", error)
    worst: dict[str, Any] = max(known.errors(), key=lambda one: len(one["loc"]))
    if worst["type"] == "json_invalid":
        return response_of(HttpRefusal(400, "invalid_json", f"The body is not valid JSON: {worst['ctx']['error']}."))
    where, *steps = worst["loc"]
    missing = worst["type"] == "missing"
    path = _path(steps, known.body, missing) if where == "body" else ".".join(map(str, steps))
    code = "missing_required_parameter" if missing else "invalid_value"
    message = _mistake(path, worst) if path else "The body must be JSON, with Content-Type: application/json."
    return response_of(HttpRefusal(400, code, message, path or None))


def _mistake(path: str, error: dict[str, Any]) -> str:
    """Say what is wrong at a path, as a sentence."""
    field = error.get("ctx", {}).get("discriminator", "").strip("'").removesuffix("()").replace("_", " ")
    match error["type"]:
        case "union_tag_invalid":
            tag, expected = error["ctx"]["tag"][:100], error["ctx"]["expected_tags"]
            return f"{path}: {field} {tag!r} is not known here; choose one of {expected}."
        case "union_tag_not_found":
            return f"{path}: {field} is missing."
        case _:
            return f"{path}: {error['msg']}."


def _path(steps: Sequence[int | str], body: Any, missing: bool) -> str:
    """Return where in the body a mistake is; pydantic's steps name the kinds that it tried, too, which are no part of
    it.

    The last step of a field that is ``missing`` leads to nothing.
    """
    walked: list[str] = []
    for n, step in enumerate(steps):
        if isinstance(body, Mapping) and step in body:
            body = cast("Mapping[Any, Any]", body)[step]
        elif isinstance(body, list) and isinstance(step, int):
            body = cast("list[Any]", body)[step]
        elif not (missing and n == len(steps) - 1):
            continue
        walked.append(str(step))
    return ".".join(walked)


async def _unrouted(request: Request, error: Exception) -> JSONResponse:
    """No such path or method, or a body that can't be read."""
    known = cast("Unrouted", error)
    code = {404: "not_found", 405: "method_not_allowed"}.get(known.status_code, "invalid_request")
    response = response_of(HttpRefusal(known.status_code, code, f"{known.detail}."))
    response.headers.update(known.headers or {})
    return response
