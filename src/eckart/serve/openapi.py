"""The OpenAPI description of the service, made of the types of its requests."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from eckart.query.requests import KINDS, VERBS


def openapi(version: str, models: tuple[str, ...] = ()) -> dict[str, Any]:
    """The OpenAPI description of the service, of these models."""
    refused = _problems(400, 401, 404, 405, 406, 408, 413, 415, 422, 429, 503)
    arrow = {
        "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}}
    }
    table = {
        "type": "object",
        "required": ["model", "version", "verb", "answer"],
        "additionalProperties": False,
        "properties": {
            "model": {"type": "string"},
            "version": {"type": "string"},
            "verb": {"type": "string", "enum": list(VERBS)},
            "answer": {
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": ["string", "number", "boolean", "null"]},
                },
            },
        },
    }
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string"} | ({"enum": list(models)} if models else {}),
    }
    paths: dict[str, Any] = {}
    for verb, kind in VERBS.items():
        asked = fields(kind)
        body = {
            "type": "object",
            "additionalProperties": False,
            "required": [f.name for f in asked if f.default is MISSING],
            "properties": {f.name: _described(f.name, f.default) for f in asked},
        }
        paths[f"/v1/models/{{name}}/{verb}"] = {
            "post": {
                "summary": kind.__doc__,
                "operationId": verb,
                "parameters": [name],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": body}} | arrow,
                },
                "responses": {
                    "200": {
                        "description": "Columns of one length.",
                        "content": {"application/json": {"schema": table}} | arrow,
                    }
                }
                | refused,
            }
        }
    text, thing = {"type": "string"}, {"type": "object"}
    card = {"type": "object", "required": ["name", "version", "class", "verbs", "certificate"]}
    cards = {
        "type": "object",
        "required": ["models"],
        "properties": {"models": {"type": "array", "items": card}},
    }
    for place, what, media, schema in (
        ("/v1/models", "Model cards.", "application/json", cards),
        ("/v1/models/{name}", "The card of a model.", "application/json", card),
        ("/health", "The process runs.", "application/json", thing),
        ("/ready", "All models are loaded.", "application/json", thing),
        ("/metrics", "For Prometheus.", "text/plain", text),
        ("/openapi.json", "This description.", "application/json", thing),
        ("/docs", "This description, for people.", "text/html", text),
    ):
        answers = {
            "200": {"description": what, "content": {media: {"schema": schema}}}
        } | _problems(401, 404, 405, 429, 503)
        paths[place] = {
            "get": {"summary": what, "responses": answers}
            | ({"parameters": [name]} if "{" in place else {})
        }
    about = {
        "title": "eckart",
        "version": version,
        "description": "Questions to saved models. Arrow streams carry X, or columns of ids; other "
        "fields stand in the query.",
    }
    security = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {
        "openapi": "3.1.0",
        "info": about,
        "paths": paths,
        "components": security,
        "security": [{}, {"token": []}],
    }


def _described(name: str, default: Any) -> dict[str, Any]:
    """A field of a request; null stands for a field that is not given."""
    if default is MISSING:
        return KINDS[name]
    return {"anyOf": [KINDS[name], {"type": "null"}]} | (
        {} if default is None else {"default": default}
    )


def _problems(*statuses: int) -> dict[str, Any]:
    """Refusals, all of one shape."""
    shape = {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
    }
    problem = {
        "description": "A problem: what is wrong, what is right, what to do.",
        "content": {"application/problem+json": {"schema": shape}},
    }
    return {str(status): problem for status in statuses}
