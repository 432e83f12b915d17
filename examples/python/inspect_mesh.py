#!/usr/bin/env python3
"""Lists the workers of a mesh with plain NATS alone: no line of it knows Teamster, only NATS micro services (ADR-32).

    python inspect_mesh.py            # TEAMSTER_NATS, TEAMSTER_CREDS
"""

import asyncio
import json
import os
import sys

import nats
import nats.errors

from teamster_worker import seed_of, sign_without_packages


async def ask(nc, verb):
    """What all services answer within a short while."""
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    await nc.publish(f"$SRV.{verb}", b"", reply=inbox)
    found = []
    try:
        while True:
            message = await answers.next_msg(timeout=1.0 if not found else 0.5)
            if not (message.headers or {}).get("Status"):
                found.append(json.loads(message.data))
    except nats.errors.TimeoutError:
        pass
    await answers.unsubscribe()
    return sorted(found, key=lambda one: (one["name"], one["id"]))


async def main():
    options, creds = {}, os.environ.get("TEAMSTER_CREDS")
    if creds:
        user = os.path.basename(creds).rsplit(".", 1)[0]
        options = {"nkeys_seed_str": seed_of(creds), "inbox_prefix": f"_INBOX.{user}"}
        sign_without_packages()
    nc = await nats.connect(os.environ.get("TEAMSTER_NATS", "nats://127.0.0.1:4222"), **options)
    json.dump({verb: await ask(nc, verb) for verb in ("PING", "INFO", "STATS")}, sys.stdout)
    await nc.close()


asyncio.run(main())
