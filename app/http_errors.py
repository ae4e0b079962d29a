"""All errors of HTTP routes in the OpenAI API's JSON: ``{"error": {message, type, code, param}}``."""

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
    """A request that can't be served: the HTTP status, the API's error code, and the field at fault if there is one."""

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
    "4XX": {
        "model": ErrorBody,
        "description": "The request is invalid or not allowed; `param` names the field at fault.",
    },
    "5XX": {
        "model": ErrorBody,
        "description": "The server failed. 503: no capacity, retry after `Retry-After`. 504: no progress in time.",
    },
}
"""Error responses that any route may give, for OpenAPI."""

ERRORS = (HttpRefusal, Closed, Refusal, MediaError, MemoryFull, QuotaExceeded, EngineError)
"""Errors that routes may raise. All of them become the API's JSON."""


def refusal_of(error: Exception) -> HttpRefusal:
    """Convert any of ERRORS to an HTTP error."""
    match error:
        case HttpRefusal():
            return error
        case Closed(code=code, status=status):
            return HttpRefusal(status, code, str(error))
        case Refusal(code=code, param=param):
            return HttpRefusal(400, code, str(error), param)
        case MediaError():
            return HttpRefusal(400, "invalid_value", f"The media can't be used: {error}.")
        case MemoryFull(code=code):
            return HttpRefusal(503, code, str(error))
        case QuotaExceeded(code=code):
            return HttpRefusal(429, code, str(error))
        case ContextOverflow():
            return HttpRefusal(400, "context_length_exceeded", error.public)
        case RequestError(code=code):
            return HttpRefusal(400, code, error.public)
        case Overloaded(code=code) | StageUnavailable(code=code):
            return HttpRefusal(503, code, error.public)
        case Stalled(code=code):
            return HttpRefusal(504, code, error.public)
        case EngineError(code=code):
            return HttpRefusal(500, code, error.public)
        case _:
            return HttpRefusal(500, getattr(error, "code", "server_error"), str(error))


def body_of(refusal: HttpRefusal) -> dict[str, Any]:
    """Return the JSON body of an HTTP error."""
    return error_body(refusal.status_code, refusal.code, refusal.detail, refusal.param)


def add_errors(app: FastAPI) -> None:
    """Register handlers that give all errors the same JSON shape."""
    for kind in ERRORS:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Unrouted, _unrouted)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    return response_of(refusal_of(error))


def response_of(refusal: HttpRefusal) -> JSONResponse:
    """Return the complete response for a request that is refused before it starts."""
    headers = {"retry-after": RETRY_AFTER_S} if refusal.status_code in (429, 503) else None
    return JSONResponse(body_of(refusal), refusal.status_code, headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Report a body's most deeply nested validation error, with its path.

    Where a field may have several types, the deepest error is in the type that the client meant. The sent value is not
    repeated, except for a wrong type name.
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
    """Return a sentence that says what is wrong at a path."""
    field = error.get("ctx", {}).get("discriminator", "").strip("'").removesuffix("()").replace("_", " ")
    match error["type"]:
        case "union_tag_invalid":
            tag, expected = error["ctx"]["tag"][:100], error["ctx"]["expected_tags"]
            return f"{path}: {field} {tag!r} is unknown; choose one of {expected}."
        case "union_tag_not_found":
            return f"{path}: {field} is missing."
        case _:
            return f"{path}: {error['msg']}."


def _path(steps: Sequence[int | str], body: Any, missing: bool) -> str:
    """Return where in the body the error is, without the names of the types that pydantic tried.

    If the field is ``missing``, the last step does not exist in the body.
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
    """Answer a request with an unknown path or method, or an unreadable body."""
    known = cast("Unrouted", error)
    code = {404: "not_found", 405: "method_not_allowed"}.get(known.status_code, "invalid_request")
    response = response_of(HttpRefusal(known.status_code, code, f"{known.detail}."))
    response.headers.update(known.headers or {})
    return response
