#!/usr/bin/env python3
"""A worker that tells the weather, in Python over plain NATS. See README.md beside it.

Four functions with four contracts, so that a policy has something to say: reading runs at once, what leaves the owner's
systems asks first, and what must not be repeated is never repeated silently.
"""

import asyncio
import os

from teamster_worker import Fault, Worker

KNOWN = {"Lisbon": (24, "clear"), "Oslo": (-3, "snow"), "Pune": (31, "haze")}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
# Whoever wrote the figures is us: public data, nothing that an outsider could have put there.
OURS = {"data": "public", "trust": "trusted", "visibility": "agent"}

worker = Worker("weather", "Tells the weather of three cities.")


@worker.function(
    "weather::current",
    "Tells temperature and sky of a city now.",
    CITY,
    {"type": "object", "properties": {"celsius": {"type": "integer"}, "sky": {"type": "string"}}},
    **{"class": "read", "target": "/city", **OURS},
)
async def current(call, request):
    city = request.get("city")
    if city not in KNOWN:
        hint = f"known are {', '.join(sorted(KNOWN))}"
        raise Fault("weather.unknown_city", f"there is no station in {city!r}", "caller", hint=hint)
    celsius, sky = KNOWN[city]
    return {"celsius": celsius, "sky": sky}


@worker.function(
    "weather::compare",
    "Says which of two cities is warmer.",
    {
        "type": "object",
        "properties": {"one": {"type": "string"}, "other": {"type": "string"}},
        "required": ["one", "other"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"warmer": {"type": "string"}}},
    **{"class": "read", **OURS},
)
async def compare(call, request):
    """Calls another function of its own, which needs no right on the mesh; the trace goes along."""
    found = {}
    for city in (request["one"], request["other"]):
        found[city] = (await worker.call("weather::current", {"city": city}))["celsius"]
    return {"warmer": max(found, key=found.get)}


@worker.function(
    "weather::calibrate",
    "Sets a city's thermometer anew. Takes as many seconds as asked for.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "seconds": {"type": "number", "minimum": 0, "maximum": 600}},
        "required": ["city"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"calibrated": {"type": "string"}}},
    # Not idempotent: if the worker dies in mid-call nobody repeats it, and the model is told that the outcome is unknown.
    **{"class": "write", "target": "/city", "timeout_ms": 900_000, **OURS},
)
async def calibrate(call, request):
    journal = os.environ.get("WEATHER_JOURNAL")
    if journal:
        with open(journal, "a", encoding="utf-8") as file:
            file.write(f"{request['city']} {call.id}\n")
    await asyncio.sleep(request.get("seconds", 0))
    return {"calibrated": request["city"]}


# Nothing is declared but who may call it. So it counts as egress of personal data with an untrusted answer: a person is asked.
@worker.function("weather::alarm", "Sends a storm warning to everybody.", CITY, visibility="agent")
async def alarm(call, request):
    return {"warned": request["city"]}


if __name__ == "__main__":
    worker.run()
