#!/usr/bin/env bash
# The first minutes of somebody who has just heard of Teamster: an empty home, a fresh clone, the README's commands, without
# a terminal. Each command is counted and timed: the first answer, the first approval, the kill, the turn that goes on.
#
# Needs Rust and Python's pip; no network but the package registries. Results of the build go to CARGO_TARGET_DIR where it is
# set, so that a kept folder makes a repetition cheap; else into the scratch folder, which is removed.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly here
scratch="$(mktemp -d "${TMPDIR:-/tmp}/teamster-newcomer.XXXXXX")"
readonly scratch
commands=0
mesh=""

clean() {
    if [[ -n "$mesh" ]]; then
        kill "$mesh" 2>/dev/null || true
        for _ in $(seq 300); do
            kill -0 "$mesh" 2>/dev/null || break
            sleep 0.1
        done
    fi
    rm -rf "$scratch"
}
trap clean EXIT

fail() {
    printf 'newcomer: %s\n' "$*" >&2
    exit 1
}

# Milliseconds since the script began.
began="$(date +%s%N)"
readonly began
now() { echo $((($(date +%s%N) - began) / 1000000)); }

# Says that something happened, and when.
mark() { printf '%8.1f s  %s\n' "$(awk "BEGIN { print $(now) / 1000 }")" "$*"; }

# Writes each line with its time to a file, as it comes.
stamp() {
    local line
    while IFS= read -r line; do
        printf '%s %s\n' "$(now)" "$line"
    done >"$1"
}

# The time of the first stamped line that holds a text.
when() {
    local line
    line="$(grep --max-count=1 --fixed-strings -- "$2" "$1")" || fail "the demo never said: $2"
    printf '%8.1f s  %s\n' "$(awk "BEGIN { print ${line%% *} / 1000 }")" "$3"
}

# Rust is there with its caches; everything else of the home is new.
export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
export HOME="$scratch/home" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$scratch/target}"
unset XDG_DATA_HOME XDG_CACHE_HOME XDG_CONFIG_HOME
for name in $(compgen -e | grep -E '^(TEAMSTER_|OPENAI_|OPENROUTER_|ANTHROPIC_|GEMINI_)' || true); do
    unset "$name"
done
mkdir -p "$HOME" "$scratch/project"

for command in 'cargo run --release -- demo' 'teamster run' 'cargo test --workspace --locked'; do
    grep --quiet --fixed-strings "$command" "$here/README.md" || fail "README.md does not name: $command"
done

git clone --quiet "$here" "$scratch/teamster"
cd "$scratch/teamster"
mark 'cloned'

# 1. The demo.
commands=$((commands + 1))
cargo run --release --quiet -- demo </dev/null | stamp "$scratch/demo.txt" || fail 'the demo failed'
when "$scratch/demo.txt" 'Hello! I am the guided script' 'demo: first answer (built before it)'
when "$scratch/demo.txt" 'sha256 ' 'demo: first approval shown'
when "$scratch/demo.txt" 'is gone: ' 'demo: its process is killed'
when "$scratch/demo.txt" 'goes on with the turn' 'demo: the turn goes on'
when "$scratch/demo.txt" 'turn ended: completed' 'demo: done'

# 2. The same by hand, in a directory of one's own.
export PATH="$CARGO_TARGET_DIR/release:$PATH"
cd "$scratch/project"
printf 'Buy bread.\n' >notes.md
ask=(teamster run --key first 'what do my notes say?')

commands=$((commands + 1))
code=0
"${ask[@]}" </dev/null >"$scratch/answer.txt" 2>"$scratch/words.txt" || code=$?
mesh="$(cat "$HOME/.local/share/teamster/up.lock")"
((code == 3)) || fail "run ended with $code: $(cat "$scratch/words.txt")"
grep --quiet 'Buy bread.' "$scratch/answer.txt" || fail 'the answer does not quote the notes'
mark 'run: first answer, waits for an approval'

commands=$((commands + 1))
approval="$(tail -n 1 "$scratch/answer.txt")"
teamster approvals approve "$approval" --yes </dev/null >/dev/null 2>"$scratch/shown.txt"
grep --quiet 'sha256 ' "$scratch/shown.txt" || fail 'the approval was not shown'
for _ in $(seq 300); do
    [[ -e summary.md ]] && break
    sleep 0.1
done
[[ -e summary.md ]] || fail 'the approved file was not written'
mark 'approvals approve: the file is written'

commands=$((commands + 1))
kill -9 "$mesh"
mark "kill -9 $mesh: the answer is cut off"

# The key makes it the same message: the mesh is started again and the turn is followed to its end.
commands=$((commands + 1))
"${ask[@]}" </dev/null >"$scratch/answer.txt" 2>"$scratch/words.txt" || fail "the turn did not go on: $(cat "$scratch/words.txt")"
mesh="$(cat "$HOME/.local/share/teamster/up.lock")"
grep --quiet 'That is the whole tour' "$scratch/answer.txt" || fail 'the answer is not complete'
mark 'run: the turn went on to its end'

commands=$((commands + 1))
teamster sessions ls </dev/null >"$scratch/sessions.txt" 2>/dev/null
(("$(wc -l <"$scratch/sessions.txt")" == 1)) || fail 'there should be one session'
mark 'sessions ls: one session'

printf 'newcomer: %d commands, %.1f s with building, nothing but the package registries\n' \
    "$commands" "$(awk "BEGIN { print $(now) / 1000 }")"
