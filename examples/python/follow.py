#!/usr/bin/env python3
"""A consumer that misses nothing: follows the notices of a mesh and goes on, after any interruption, where it was.

    python follow.py NUMBER SUBJECT      # NUMBER: the last stream sequence dealt with, 0 for none; SUBJECT: evt.turn-completed.*

Each line that it prints begins with the sequence to go on from. It ends once nothing has come for two seconds; a consumer of
yours would go on. TEAMSTER_NATS, TEAMSTER_CREDS (the operator's).
"""

import asyncio
import json
import os
import sys

import nats
import nats.errors
from nats.js.api import ConsumerConfig, DeliverPolicy

from teamster_worker import seed_of, sign_without_packages


async def main(after, subject):
    options, creds = {}, os.environ.get("TEAMSTER_CREDS")
    if creds:
        user = os.path.basename(creds).rsplit(".", 1)[0]
        options = {"nkeys_seed_str": seed_of(creds), "inbox_prefix": f"_INBOX.{user}"}
        sign_without_packages()
    nc = await nats.connect(os.environ.get("TEAMSTER_NATS", "nats://127.0.0.1:4222"), **options)
    start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1)
    notices = await nc.jetstream().subscribe(subject, stream="EVENTS", ordered_consumer=True, config=start)
    seen = set()  # a notice may come twice; a consumer that outlives its process keeps this with its number
    try:
        while True:
            message = await notices.next_msg(timeout=2.0)
            notice = json.loads(message.data)
            known = (notice["session"], notice["n"], notice["i"])
            if known not in seen:
                seen.add(known)
                print(message.metadata.sequence.stream, notice["event"]["type"], notice["session"], flush=True)
    except nats.errors.TimeoutError:
        pass
    await nc.close()


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
