"""A worker for a Teamster mesh in Python: what docs/protocol.md says, over plain NATS. It needs nats-py and nothing else.

    worker = Worker("weather", "Tells the weather.")

    @worker.function("weather::current", "Tells the weather of a city.", {...schema...}, visibility="agent")
    async def current(call, request):
        return {"celsius": 21}

    worker.run()

`run` reads TEAMSTER_NATS (an address) and TEAMSTER_CREDS (a `.creds` file), serves until SIGTERM or SIGINT, and then lets
what runs come to its end.
"""

import asyncio
import contextvars
import json
import os
import re
import secrets
import signal
import sys
import time
from collections import OrderedDict

import nats
import nats.errors

# Headers (docs/protocol.md, "Headers").
CALL, SESSION, WORKSPACE = "Teamster-Call", "Teamster-Session", "Teamster-Workspace"
TIMEOUT, NOT_AFTER, STATUS = "Teamster-Timeout", "Teamster-Not-After", "Teamster-Status"
TRACEPARENT = "traceparent"
# Bounds (docs/protocol.md, "Times and bounds").
SIGN_EVERY, SILENCE_MAX = 1.0, 4.0
TIMEOUT_DEFAULT, TIMEOUT_MAX = 60.0, 1800.0
LEASE, RENEW_EVERY = 30, 10.0
MEMORY_SECONDS, MEMORY_CALLS = 600.0, 10_000
AT_ONCE, DRAIN = 256, 10.0
PAYLOAD_MAX = 8 * 1024 * 1024

_traceparent = contextvars.ContextVar("traceparent", default=None)


class Fault(Exception):
    """An error that crosses the mesh. `kind` is caller, denied, busy, gone or internal."""

    def __init__(self, code, message, kind="internal", hint=None, retry_after_ms=None):
        super().__init__(f"{message} ({code})")
        self.fields = {"code": code, "class": kind, "message": message[:2000]}
        if hint is not None:
            self.fields["hint"] = hint[:2000]
        if retry_after_ms is not None:
            self.fields["retry_after_ms"] = retry_after_ms


class Call:
    """What a function knows about the call that it serves. Without a header, a field is None."""

    def __init__(self, subject, headers):
        self.id = headers.get(CALL)
        self.session = untoken(headers[SESSION]) if SESSION in headers else None
        self.workspace = headers.get(WORKSPACE)
        self.timeout = int(headers[TIMEOUT]) / 1000 if TIMEOUT in headers else None
        self.not_after = int(headers[NOT_AFTER]) / 1000 if NOT_AFTER in headers else None
        # The span of this call, below the one that the caller named: what this call calls in turn stands below it.
        self.traceparent = child_of(headers.get(TRACEPARENT))
        self.parent = span_of(headers.get(TRACEPARENT))
        # The broker let this principal publish here; no header could say that.
        self.principal = subject.split(".")[1] if subject.startswith("op.") else None
        if self.id is not None and not 1 <= len(self.id.encode()) <= 256:
            raise ValueError(CALL)

    @property
    def trace(self):
        """The trace's id, 32 hexadecimal digits."""
        return self.traceparent.split("-")[1]

    @property
    def span(self):
        """The id of this call's span, 16 hexadecimal digits."""
        return self.traceparent.split("-")[2]


class _Known:
    """A call that runs or ran."""

    def __init__(self, function):
        self.function, self.task, self.outcome, self.ended = function, None, None, None


class _Function:
    def __init__(self, contract, handler):
        self.contract, self.handler = contract, handler
        prefix = "fn" if contract.get("visibility") in ("agent", "worker") else "op.*"
        self.subject = prefix + "." + contract["id"].replace("::", ".")
        self.requests, self.errors, self.nanos, self.last_error = 0, 0, 0, ""
        declared = contract.get("timeout_ms")
        self.timeout = min(TIMEOUT_DEFAULT if declared is None else declared / 1000, TIMEOUT_MAX)


class _Own:
    """A request of a worker to itself. Nothing of it goes over the wire, so nobody waits for signs of life."""

    reply = None

    def __init__(self, subject, headers, data):
        self.subject, self.headers, self.data = subject, headers, data


class Worker:
    def __init__(self, name, description, version="0.1.0"):
        self.name, self.description, self.version = name, description, version
        # A fresh value at each start; it begins with the time, so that the newest life of a worker sorts last.
        self.incarnation = f"{time.time_ns() // 1_000_000:012x}7{secrets.token_hex(10)[:19]}"
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.functions, self.hooks = [], []
        self.nc = None
        self._known, self._tasks, self._refused = OrderedDict(), set(), set()

    # -- What it serves

    def function(self, id, description, request, reply=True, **labels):
        """Declares a function. What `labels` leave out counts as the strictest: egress, personal, untrusted, operators only."""
        contract = {"id": id, "description": description, "request": request, "reply": reply, **labels}

        def declare(handler):
            self.functions.append(_Function(contract, handler))
            return handler

        return declare

    def hook(self, binding):
        """Binds one of its functions to a point of a turn."""
        self.hooks.append(binding)

    # -- Its life

    def run(self):
        """Serves until it is told to end."""
        asyncio.run(self.serve(os.environ.get("TEAMSTER_NATS", "nats://127.0.0.1:4222"), os.environ.get("TEAMSTER_CREDS")))

    async def serve(self, url, creds=None):
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.connect(url, creds)
        subscriptions = []
        for function in self.functions:
            subscriptions.append(await self.nc.subscribe(function.subject, queue="q", cb=self._taking(function)))
        for namespace in sorted({f.contract["id"].split("::")[0] for f in self.functions}):
            subscriptions.append(await self.nc.subscribe(f"call.{token(namespace)}.*", cb=self._questioned))
        for verb in ("PING", "INFO", "STATS"):
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{self.name}", f"$SRV.{verb}.{self.name}.{self.incarnation}"):
                await self.nc.subscribe(subject, cb=self._inspected)
        await self.nc.flush()
        await self._register(patience=10.0)
        renewing = asyncio.create_task(self._renew())
        say(f"{self.name} serves {len(self.functions)} functions")
        await stop.wait()
        renewing.cancel()
        await self._forget()
        # Questions about calls are still answered while these come to their end.
        for subscription in subscriptions[: len(self.functions)]:
            await subscription.drain()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=DRAIN)
        await self.nc.close()

    async def connect(self, url, creds=None):
        """Connects. Inboxes lie below `_INBOX.<name>.`, the only ones that the broker lets this user read."""
        options = {}
        if creds:
            options["nkeys_seed_str"] = seed_of(creds)
            sign_without_packages()
        self.nc = await nats.connect(
            servers=[one.strip() for one in url.split(",")],
            name=f"{self.name}-{self.incarnation}",
            inbox_prefix=f"_INBOX.{self.name}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,
            reconnected_cb=self._reconnected,
            error_cb=self._failed,
            **options,
        )
        return self

    # -- Registration: a key with a lease

    async def _register(self, patience=0.0):
        entry = {
            "name": self.name,
            "incarnation": self.incarnation,
            "version": self.version,
            "description": self.description,
            "functions": [function.contract for function in self.functions],
        }
        await self._put(f"worker.{self.name}.{self.incarnation}", entry, {"Nats-TTL": f"{LEASE}s"}, patience)
        if self.hooks:  # without a lease: a guard that is gone must be missed
            await self._put(f"hooks.{token(self.name)}", {"name": self.name, "bindings": self.hooks}, {}, patience)

    async def _put(self, key, value, headers, patience):
        deadline = time.monotonic() + patience
        while True:
            try:
                body = b"" if value is None else json.dumps(value).encode()
                answer = await self.nc.request(f"$KV.registry.{key}", body, timeout=5, headers=headers)
                said = json.loads(answer.data)
                if "error" in said:
                    raise RuntimeError(f"the registry refused {key}: {said['error']}")
                return
            except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(0.1)

    async def _forget(self):
        headers = {"KV-Operation": "DEL", "Nats-TTL": "60s"}
        try:
            await self._put(f"worker.{self.name}.{self.incarnation}", None, headers, 0)
        except Exception as error:  # the lease ends by itself
            say(f"the registration could not be removed: {error}")

    async def _renew(self):
        while True:
            await asyncio.sleep(RENEW_EVERY)
            await self._reconnected()

    async def _failed(self, error):
        """The broker says what this user may not do; nobody else would."""
        refused = re.search(r'publish to "([^"]+)"', str(error), re.IGNORECASE)
        if refused:
            self._refused.add(refused.group(1))
        say(f"the connection reports: {error!r}")

    async def _reconnected(self):
        try:
            await self._register(patience=2.0)
        except Exception as error:
            say(f"the registration could not be renewed: {error}")

    # -- Calls

    def _taking(self, function):
        async def take(message):
            if not message.reply.startswith("_INBOX."):
                return  # nobody asks: the broker sends its answers to whatever subject a request names
            if len(self._tasks) >= AT_ONCE:
                busy = Fault("mesh.busy", "the worker serves as many calls as it may", "busy", retry_after_ms=250)
                await self._answer(message, busy)
                return
            self._begin(self._take(function, message))

        return take

    def _begin(self, work):
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take(self, function, message):
        await self._answer(message, await self._served(function, message))

    async def _served(self, function, message):
        began = time.monotonic_ns()
        try:
            call = Call(message.subject, message.headers or {})
        except (ValueError, KeyError) as error:
            outcome = Fault("mesh.bad_request", f"a header of the request cannot be read: {error}", "caller")
        else:
            outcome = await self._outcome(function, call, message)
        function.requests += 1
        function.nanos += time.monotonic_ns() - began
        if isinstance(outcome, Fault):
            function.errors += 1
            function.last_error = str(outcome)
        return outcome

    async def _outcome(self, function, call, message):
        """From memory, from the run that is under way, or from a run of its own."""
        self._forget_old()
        known = self._known.get(call.id) if call.id else None
        if known is None and call.not_after is not None and time.time() > call.not_after:
            return Fault("mesh.too_late", f"the call of {function.contract['id']} came too late and was not begun", "gone")
        if known is not None and known.function is not function:
            return Fault("mesh.call_id_reused", f"the call id {call.id} belongs to a call of another function", "caller")
        if known is not None:
            return await self._wait(known, message, None)
        known = _Known(function)
        if call.id:
            self._known[call.id] = known
        known.task = asyncio.create_task(self._handle(function, call, message.data))
        wanted = function.timeout if call.timeout is None else min(call.timeout, function.timeout)
        outcome = await self._wait(known, message, wanted)
        known.outcome, known.ended = outcome, time.monotonic()
        if call.id:
            self._known.move_to_end(call.id)
        return outcome

    async def _wait(self, known, message, timeout):
        """Waits for a call's end and says once a second that it still runs."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while known.outcome is None:
            left = SIGN_EVERY if deadline is None else min(SIGN_EVERY, max(0.0, deadline - time.monotonic()))
            done, _ = await asyncio.wait({known.task}, timeout=left)
            if done:
                return known.outcome or ended(known)
            if deadline is not None and time.monotonic() >= deadline:
                known.task.cancel()
                return Fault("mesh.timeout", f"{known.function.contract['id']} did not end in time", "busy")
            await self._sign(message)
        return known.outcome

    async def _handle(self, function, call, body):
        _traceparent.set(call.traceparent)
        say(f"{function.contract['id']} {call.id or '-'} trace={call.trace} span={call.span} parent={call.parent or '-'}")
        try:
            request = json.loads(body or b"{}")
        except ValueError as error:
            raise Fault("mesh.bad_request", f"the request is not valid JSON: {error}", "caller") from None
        if not isinstance(request, dict):
            raise Fault("mesh.bad_request", "the request must be a JSON object", "caller")
        reply = json.dumps(await function.handler(call, request)).encode()
        if len(reply) > PAYLOAD_MAX:
            raise Fault("mesh.reply_too_large", f"the reply has {len(reply)} bytes; {PAYLOAD_MAX} are allowed")
        return reply

    def _forget_old(self):
        oldest = time.monotonic() - MEMORY_SECONDS
        for id, known in list(self._known.items()):
            if known.ended is None:
                continue
            if known.ended > oldest and len(self._known) <= MEMORY_CALLS:
                break
            del self._known[id]

    async def _questioned(self, message):
        """Somebody asks what became of a call, or wants it to end."""
        known = self._known.get(untoken(message.subject.rsplit(".", 1)[1]))
        try:
            query = json.loads(message.data)["query"]
        except (ValueError, KeyError, TypeError):
            return
        if query == "cancel":
            if known is not None and known.ended is None and known.task is not None:
                known.task.cancel()
        elif query == "join" and message.reply:
            if known is None:
                await self.nc.publish(message.reply, b"", headers={STATUS: "unknown"})
            else:
                if known.outcome is None:
                    await self._sign(message)
                self._begin(self._joined(known, message))

    async def _joined(self, known, message):
        await self._answer(message, await self._wait(known, message, None))

    async def _sign(self, message):
        """Says that a call still runs."""
        if message.reply:
            await self.nc.publish(message.reply, b"", headers={STATUS: "running"})

    async def _answer(self, message, outcome):
        if not message.reply:
            return
        if isinstance(outcome, Fault):
            code = outcome.fields["code"]
            headers = {STATUS: "fault", "Nats-Service-Error": code, "Nats-Service-Error-Code": "500"}
            await self.nc.publish(message.reply, json.dumps(outcome.fields).encode(), headers=headers)
        else:
            await self.nc.publish(message.reply, outcome)

    # -- Discovery (NATS micro services, ADR-32)

    async def _inspected(self, message):
        verb = message.subject.split(".")[1]
        said = {"name": self.name, "id": self.incarnation, "version": self.version, "metadata": {}}
        said["type"] = f"io.nats.micro.v1.{verb.lower()}_response"
        if verb == "INFO":
            said["description"] = self.description
            said["endpoints"] = [
                {**self._endpoint(f), "metadata": {k: v if isinstance(v, str) else json.dumps(v) for k, v in f.contract.items()}}
                for f in self.functions
            ]
        elif verb == "STATS":
            said["started"] = self.started
            said["endpoints"] = [
                {
                    **self._endpoint(f),
                    "num_requests": f.requests,
                    "num_errors": f.errors,
                    "last_error": f.last_error,
                    "processing_time": f.nanos,
                    "average_processing_time": f.nanos // f.requests if f.requests else 0,
                }
                for f in self.functions
            ]
        await message.respond(json.dumps(said).encode())

    @staticmethod
    def _endpoint(function):
        name = function.contract["id"].replace("::", "-")
        return {"name": name, "subject": function.subject, "queue_group": "q"}

    # -- Calling others

    async def call(self, function, request, timeout=TIMEOUT_DEFAULT, call=None):
        """Calls a function and returns its reply. Raises Fault; who must not be called twice is called once.

        A function of this worker is called here: a granted worker may ask nobody over the mesh, not even itself."""
        headers = {TIMEOUT: str(int(timeout * 1000)), TRACEPARENT: _traceparent.get() or child_of(None)}
        if call is not None:
            headers[CALL] = call
        own = next((one for one in self.functions if one.contract["id"] == function and one.subject.startswith("fn.")), None)
        if own is not None:
            outcome = await self._served(own, _Own(own.subject, headers, json.dumps(request).encode()))
            if isinstance(outcome, Fault):
                raise outcome
            return json.loads(outcome)
        inbox = self.nc.new_inbox()
        answers = await self.nc.subscribe(inbox)
        try:
            subject = "fn." + function.replace("::", ".")
            await self.nc.publish(subject, json.dumps(request).encode(), reply=inbox, headers=headers)
            deadline, silence = time.monotonic() + timeout, None
            while True:
                until = deadline if silence is None else min(deadline, silence)
                try:
                    message = await answers.next_msg(timeout=min(0.25, max(0.001, until - time.monotonic())))
                except nats.errors.TimeoutError:
                    if subject in self._refused:
                        raise Fault("mesh.denied", f"this worker may not call {function}", "denied") from None
                    if time.monotonic() < until:
                        continue
                    if until == deadline:
                        raise Fault("mesh.timeout", f"{function} gave no answer in time", "busy") from None
                    raise Fault("mesh.callee_lost", f"the worker that ran {function} is gone", "gone") from None
                said = message.headers or {}
                if said.get("Status") == "503":
                    raise Fault("mesh.no_responders", f"no worker serves {function} now", "gone")
                if said.get(STATUS) == "running":
                    silence = time.monotonic() + SILENCE_MAX
                    continue
                if said.get(STATUS) == "fault":
                    fault = json.loads(message.data)
                    raise Fault(fault["code"], fault["message"], fault["class"], fault.get("hint"), fault.get("retry_after_ms"))
                return json.loads(message.data)
        finally:
            await answers.unsubscribe()


# -- Messages


def ended(known):
    """What a handler's task came to."""
    if known.task.cancelled():
        return Fault("mesh.cancelled", f"the call of {known.function.contract['id']} was cancelled", "gone")
    error = known.task.exception()
    if error is None:
        return known.task.result()
    if isinstance(error, Fault):
        return error
    say(f"{known.function.contract['id']} failed: {error!r}")  # not told to the caller: it may hold anything
    return Fault("mesh.panic", f"{known.function.contract['id']} failed unexpectedly")


# -- Text


def token(text):
    """Any text as one subject token: letters, digits, `_` and `-` stay, every other byte becomes `=HH`."""
    return "".join(chr(b) if chr(b) in _PLAIN else f"={b:02X}" for b in text.encode())


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def untoken(text):
    """Reads what `token` wrote."""
    parts = text.split("=")
    raw = parts[0].encode() + b"".join(bytes([int(part[:2], 16)]) + part[2:].encode() for part in parts[1:])
    plain = raw.decode()
    if token(plain) != text:
        raise ValueError(f"{text!r} is no token")
    return plain


def partition(session):
    """The partition of a session: FNV-1a-32 of its token, modulo 64, two digits."""
    hash = 0x811C9DC5
    for byte in token(session).encode():
        hash = (hash ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{hash % 64:02d}"


def child_of(traceparent):
    """A traceparent of the same trace with a span of its own; of a new trace where there is none."""
    fields = (traceparent or "").split("-")
    trace, flags = (fields[1], fields[3]) if span_of(traceparent) else (secrets.token_hex(16), "01")
    return f"00-{trace}-{secrets.token_hex(8)}-{flags}"


def span_of(traceparent):
    """The id of the span that a traceparent names; None where it names none."""
    fields = (traceparent or "").split("-")
    is_good = len(fields) >= 4 and len(fields[1]) == 32 and len(fields[2]) == 16 and set(fields[1]) != {"0"}
    return fields[2] if is_good else None


def seed_of(creds):
    """The line of a `.creds` file that is the user's seed."""
    with open(creds, encoding="ascii") as file:
        for line in file:
            if line.startswith("SU"):
                return line.strip()
    raise ValueError(f"{creds} holds no user's seed")


def sign_without_packages():
    try:
        import nkeys  # noqa: F401
    except ImportError:
        import nkey_lite

        sys.modules["nkeys"] = nkey_lite


def say(line):
    print(line, file=sys.stderr, flush=True)
