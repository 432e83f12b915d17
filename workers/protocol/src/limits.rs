//! The bounds of the house, in one table. Every queue, body, list, retry and wait takes its bound from here or from
//! configuration whose default stands here.

use std::time::Duration;

/// Partitions of the session space. Fixed when the streams are created.
pub const PARTITIONS: u8 = 64;
/// Log streams; stream `k` holds the partitions `p` with `p % 8 == k`. Fixed when the streams are created.
pub const LOG_STREAMS: u8 = 8;
/// Bytes of a session's encoded token.
pub const SESSION_TOKEN_BYTES_MAX: usize = 128;
/// Bytes of a function id.
pub const FUNCTION_ID_BYTES_MAX: usize = 128;
/// Characters of a tool name on a provider's wire (the limit that OpenAI and Anthropic publish).
pub const WIRE_NAME_CHARS_MAX: usize = 64;

/// Bytes of one commit.
pub const COMMIT_BYTES_MAX: usize = 512 * 1024;
/// Bytes of events that one commit gathers; the rest of `COMMIT_BYTES_MAX` is its head, what it consumes and its outbox.
pub const EVENTS_BYTES_MAX: usize = COMMIT_BYTES_MAX - 96 * 1024;
/// Bytes of one user message's text.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Bytes of what a model may say in one generation, calls included. More is cut as `length`.
pub const COMPLETION_BYTES_MAX: usize = 256 * 1024;
/// Bytes of drafted user messages after which the rest stays in its queue until the next commit.
pub const DRAIN_BYTES_MAX: usize = 64 * 1024;
/// Calls that one assistant message may hold; further ones are refused.
pub const CALLS_PER_MESSAGE_MAX: usize = 32;
/// Bytes of one function result as the model and the log see it; a longer one is cut with a marker.
pub const RESULT_BYTES_MAX: usize = 32 * 1024;
/// Bytes to which a result is cut at most, in a window however small.
pub const RESULT_BYTES_MIN: usize = 1024;
/// Reads of one batch that run at the same time; also bounds what their outcomes add to one commit.
pub const READS_AT_ONCE_MAX: usize = 4;
/// Bytes of one request or reply between workers. The embedded server's `max_payload`.
pub const PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of one stored value (`blob.<sha256>`); it must fit into one message.
pub const BLOB_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 64 * 1024;
/// How long a stored value is kept that no session names: it is stored before the commit that names it.
pub const VALUE_UNNAMED_KEPT: Duration = Duration::from_hours(24);
/// How long notices are kept for consumers that were away.
pub const NOTICES_KEPT: Duration = Duration::from_hours(7 * 24);
/// How long deltas are kept of what is being generated.
pub const DELTAS_KEPT: Duration = Duration::from_mins(10);
/// How often it is looked for stored values that no session names.
pub const VALUES_SWEEP_EVERY: Duration = Duration::from_mins(15);
/// How long a look for them that could not be finished is put off.
pub const VALUES_SWEEP_RETRY: Duration = Duration::from_mins(1);
/// Stored values that one look regards; of further ones none is removed.
pub const VALUES_LISTED_MAX: usize = 1_000_000;
/// Stored values that one look notes, and that it removes.
pub const VALUES_SWEPT_MAX: usize = 1000;
/// Notes that a session's metadata may hold.
pub const METADATA_MAX: usize = 32;
/// Bytes of a name or a value in a session's metadata.
pub const METADATA_BYTES_MAX: usize = 512;
/// Bytes of a session's title.
pub const TITLE_BYTES_MAX: usize = 256;
/// Messages that one request may append.
pub const APPEND_MAX: usize = 64;
/// Bytes of text that one request may append; it goes into one commit.
pub const APPEND_BYTES_MAX: usize = 256 * 1024;
/// Bytes of appended messages that may wait for the end of a step; further ones are refused.
pub const APPEND_WAITING_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of what an appended message is (`kind`).
pub const APPEND_KIND_BYTES_MAX: usize = 128;
/// Requests for a decision that outlive their session as digests; the oldest go first.
pub const TOMBSTONE_APPROVALS_MAX: usize = 256;
/// Consumed inputs that outlive their session; the oldest go first.
pub const TOMBSTONE_KEYS_MAX: usize = 256;
/// Rows of what a session has spent; beyond that rows are added together, none is left out.
pub const SPENT_ROWS_MAX: usize = 256;
/// What is spent within this many milliseconds by one model is one row: no clock differs from another's by a part of it.
pub const SPENT_SLOT_MS: u64 = 15 * 60 * 1000;
/// Bytes of a model's name in such a row.
pub const SPENT_MODEL_BYTES_MAX: usize = 256;
/// How long a change of a session waits for the commit that takes it.
pub const ADMIN_WAIT: Duration = Duration::from_secs(10);
/// Bytes of history that a loop without a context worker sends to a model; older turns are left out beyond it.
pub const HISTORY_BYTES_MAX: usize = 1024 * 1024;
/// Tokens of a window that are kept free at most for what an estimate misses.
pub const CONTEXT_RESERVE_TOKENS_MAX: u64 = 20_000;
/// Tokens of the newest results that are masked only when nothing else is left.
pub const CONTEXT_NEWEST_TOKENS: u64 = 40_000;
/// Turns at the end of a history whose results are masked only when nothing older is left.
pub const CONTEXT_TURNS_KEPT: u32 = 2;
/// The window, in tokens, of a model about which nobody knows anything.
pub const CONTEXT_WINDOW_DEFAULT: u64 = 8192;
/// Requests for one answer that are made smaller because a provider refused the one before as too large.
pub const CONTEXT_REFUSALS_MAX: u32 = 3;
/// How long a turn waits for the context worker before it goes on without it.
pub const CONTEXT_WAIT: Duration = Duration::from_secs(2);
/// Bytes that one `context::read` returns when nothing else is asked for.
pub const CONTEXT_PAGE_BYTES: u64 = 16 * 1024;
/// How long what a router says about a model's window is taken to hold.
pub const CONTEXT_MODEL_TTL: Duration = Duration::from_mins(1);
/// Models whose windows are remembered.
pub const CONTEXT_MODELS_MAX: usize = 256;
/// Bytes of one YAML document before it is parsed.
pub const YAML_BYTES_MAX: usize = 256 * 1024;
/// Bytes of one worker's live configuration.
pub const CONFIG_BYTES_MAX: usize = 64 * 1024;
/// Workers whose live configuration is listed.
pub const CONFIG_KEYS_MAX: usize = 256;
/// Revisions of a worker's live configuration that are kept.
pub const CONFIG_HISTORY_MAX: usize = 16;
/// Bytes of text in a fault's message or hint.
pub const FAULT_TEXT_BYTES_MAX: usize = 2048;
/// Bytes of an idempotency key.
pub const KEY_BYTES_MAX: usize = 256;
/// Idempotency keys that a session's fold remembers; the oldest go first.
pub const KEYS_PER_SESSION_MAX: usize = 4096;

/// Messages of one session that wait in its queue; the next is refused (`session.queue_full`).
pub const QUEUE_PER_SESSION_MAX: i64 = 1000;
/// Doorbells that may be un-acked at once over all workers.
pub const ACK_PENDING_MAX: i64 = 20_000;
/// Sessions that one harness process runs at once.
pub const SESSIONS_AT_ONCE_MAX: usize = 512;
/// Requests that one worker process serves at once; further ones are answered `busy`.
pub const REQUESTS_AT_ONCE_MAX: usize = 1024;
/// Turns of one session that a harness runs under one lease before it lets others have the slot.
pub const TURNS_PER_LEASE_MAX: u32 = 32;
/// Numbers that a commit leaves out which accepts the loss of a part of the log: what was lost has used some of them for ids
/// that must not be made again.
pub const LOSS_NUMBERS_SKIPPED: u64 = 1024;
/// Takeovers of one turn before it is ended as poisoned.
pub const ATTEMPTS_MAX: u32 = 5;
/// Commits read in one batch while a session is loaded.
pub const READ_BATCH: usize = 500;
/// Commits after which a new snapshot is due.
pub const SNAPSHOT_COMMITS: u64 = 64;
/// Bytes of commits after which a new snapshot is due.
pub const SNAPSHOT_BYTES: u64 = 256 * 1024;
/// Bytes of a state that is small enough to be stored at each flush of heads.
pub const SNAPSHOT_SMALL_BYTES: usize = 16 * 1024;
/// Folded sessions that a worker keeps in memory beside those that it runs. Reading one again takes one round: its snapshot is stored
/// within a second.
pub const FOLDED_SESSIONS_MAX: usize = 256;
/// Bytes of transcripts of those.
pub const FOLDED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Damaged sessions of which a harness remembers that their log went back.
pub const WITNESSES_MAX: usize = 2048;

/// The lease of last resort: an un-acked doorbell comes back after it.
pub const ACK_WAIT: Duration = Duration::from_secs(15);
/// How often each harness says that it lives.
pub const BEAT_EVERY: Duration = Duration::from_millis(100);
/// Missed beats after which a peer's sessions are kicked.
pub const BEATS_MISSED_MAX: u32 = 3;
/// How long a harness waits for a peer's word about a session.
pub const OWN_ASK: Duration = Duration::from_millis(400);
/// How much longer a silent owner is given before its session is taken.
pub const OWN_SILENCE: Duration = Duration::from_secs(1);
/// How long a request for a stored message or an acknowledgement may take.
pub const BROKER_REQUEST: Duration = Duration::from_secs(5);
/// How long a stop may take to end a turn, whatever the function that is running does.
pub const STOP_GRACE: Duration = Duration::from_secs(4);
/// How often a served call says that it is still running.
pub const CALL_PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Silence of a callee that gives signs of life which means that it is gone.
pub const CALL_SILENCE_MAX: Duration = Duration::from_secs(4);
/// Duration of a call whose contract states none.
pub const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest that a contract may state.
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_mins(30);
/// How long a worker remembers the outcome of a call.
pub const CALL_MEMORY: Duration = Duration::from_mins(10);
/// Outcomes that a worker remembers; the oldest go first.
pub const CALL_MEMORY_MAX: usize = 10_000;
/// Bytes of finished completions that one router keeps in memory; the oldest go first.
pub const GENERATION_MEMORY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a router that runs a request takes to say so to whoever joins it.
pub const JOIN_SIGN: Duration = Duration::from_millis(100);
/// The longest generation.
pub const GENERATION_MAX: Duration = Duration::from_secs(320);
/// Bytes of outcomes that a worker remembers; the oldest go first.
pub const CALL_MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a function may take to end after its call was cancelled or its time is over; then it is given up.
pub const CALL_CANCEL_GRACE: Duration = Duration::from_secs(2);
/// Deadline of a hook whose binding states none.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all hooks of one point may take together.
pub const HOOK_CHAIN: Duration = Duration::from_secs(15);
/// Bytes of one hook's answer; a longer one is a failure of the hook.
pub const HOOK_REPLY_BYTES_MAX: usize = 256 * 1024;
/// Hooks that may be bound to one point.
pub const HOOKS_PER_POINT_MAX: usize = 16;
/// How long an approval may wait when the policy states nothing.
pub const APPROVAL_TTL: Duration = Duration::from_hours(24);
/// How long an idempotency key is remembered by a session.
pub const KEY_TTL: Duration = Duration::from_hours(24);
/// Broker's window in which a repeated message id is recognised.
pub const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// Lease of a worker's registration.
pub const REGISTRATION_TTL: Duration = Duration::from_secs(30);
/// How often a worker renews its registration.
pub const REGISTRATION_EVERY: Duration = Duration::from_secs(10);
/// How long a worker may take to finish what it runs when it is told to stop.
pub const DRAIN: Duration = Duration::from_secs(10);
/// How often the sweeper looks for sessions that nobody serves.
pub const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// How often heads are copied outside their log.
pub const HEADS_EVERY: Duration = Duration::from_secs(1);

/// Steps of a turn when nothing else is asked for (`default_max_turns`).
pub const STEPS_DEFAULT: u32 = 16;
/// Generations of one turn that may be resumed after a cut stream (`max_transient_resumes`).
pub const RESUMES_DEFAULT: u32 = 1;
/// Equal calls with equal results after which the model is warned.
pub const REPEATS_WARN: u32 = 3;
/// Equal calls with equal results after which the turn ends for want of progress.
pub const REPEATS_MAX: u32 = 6;

/// Bytes of a path that a model names in a workspace.
pub const FS_PATH_BYTES_MAX: usize = 1024;
/// Bytes of a glob or of a search pattern.
pub const FS_PATTERN_BYTES_MAX: usize = 1024;
/// Bytes that a compiled search pattern may take.
pub const FS_PATTERN_COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a file that are digested and whose lines are counted while it is read.
pub const FS_DIGEST_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of a file in which a line is looked for by its number; what lies behind is reached by byte offset.
pub const FS_SCAN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a file that is searched; a larger one is skipped and counted.
pub const FS_GREP_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Bytes of a file that is written or edited.
pub const FS_WRITE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of one line in a search result; a longer one is cut around the match.
pub const FS_LINE_BYTES_MAX: usize = 400;
/// Levels of directories below the one where a walk begins.
pub const FS_DEPTH_MAX: usize = 64;
/// Entries that one walk looks at.
pub const FS_WALK_ENTRIES_MAX: usize = 200_000;
/// Items that one listing or search returns.
pub const FS_ITEMS_MAX: usize = 1000;
/// Calls of file functions that one process works on at the same time; further ones wait for their turn.
pub const FS_AT_ONCE_MAX: usize = 8;
/// How long one search may look before it answers with what it has.
pub const FS_SEARCH_MAX: Duration = Duration::from_secs(10);
/// How long one file function may take.
pub const FS_TIMEOUT: Duration = Duration::from_secs(30);

/// Commands that one process runs at the same time; further ones wait for their turn.
pub const EXEC_AT_ONCE_MAX: usize = 4;
/// How long a command may run when nothing else is asked for.
pub const EXEC_WALL: Duration = Duration::from_mins(1);
/// The longest that a command may be given.
pub const EXEC_WALL_MAX: Duration = Duration::from_mins(10);
/// How long the processes of a command have between the request to end and their end.
pub const EXEC_TERM_GRACE: Duration = Duration::from_millis(500);
/// How much later than its own end a command's answer is there: reading what is left, and taking everything down.
pub const EXEC_ANSWER_GRACE: Duration = Duration::from_secs(2);
/// Processor time of each process of a command when nothing else is asked for.
pub const EXEC_CPU: Duration = Duration::from_mins(1);
/// Memory of a command when nothing else is asked for, in bytes.
pub const EXEC_MEMORY_BYTES: u64 = 1024 * 1024 * 1024;
/// The least and the most memory that a command may be given, in bytes.
pub const EXEC_MEMORY_RANGE: (u64, u64) = (32 * 1024 * 1024, 16 * 1024 * 1024 * 1024);
/// Processes and threads of a command when nothing else is asked for.
pub const EXEC_PROCESSES: u64 = 128;
/// The most processes and threads that a command may be given.
pub const EXEC_PROCESSES_MAX: u64 = 1024;
/// Bytes of one file that a command writes when nothing else is asked for.
pub const EXEC_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// The most bytes of one file that a command may be given.
pub const EXEC_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Bytes of output that the answer to a command keeps, of both streams together; at most that may be asked for.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 24 * 1024;
/// Bytes of each of a command's file systems in memory (`/tmp`, its home, `/dev/shm`).
pub const EXEC_SCRATCH_BYTES: u64 = 256 * 1024 * 1024;
/// Files that such a file system holds.
pub const EXEC_SCRATCH_FILES: u64 = 65_536;
/// Open files of one process of a command.
pub const EXEC_OPEN_FILES: u64 = 1024;
/// Arguments of a command, its name included.
pub const EXEC_ARGS_MAX: usize = 1024;
/// Bytes of a command's arguments together.
pub const EXEC_ARGS_BYTES_MAX: usize = 96 * 1024;
/// Environment variables that a command is given.
pub const EXEC_ENV_MAX: usize = 64;
/// Bytes of a command's environment together.
pub const EXEC_ENV_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a command's standard input.
pub const EXEC_STDIN_BYTES_MAX: usize = 1024 * 1024;
/// Files that are laid into `/tmp` for one command.
pub const EXEC_FILES_MAX: usize = 64;
/// Bytes of those files together.
pub const EXEC_FILES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries of a workspace that are looked at for files to protect; in a larger one no command runs.
pub const EXEC_WALK_ENTRIES_MAX: usize = 1_000_000;
/// Files and directories of a workspace that are hidden or made read-only for one command.
pub const EXEC_MASKS_MAX: usize = 2048;

/// Rules of one policy file.
pub const POLICY_RULES_MAX: usize = 1024;
/// Words, globs or labels in one list of a policy rule.
pub const RULE_LIST_MAX: usize = 64;
/// Argument predicates of one policy rule.
pub const PREDICATES_PER_RULE_MAX: usize = 16;
/// Bytes of a rule as a judgement quotes it.
pub const RULE_TEXT_BYTES_MAX: usize = 256;
/// Bytes of a target as a judgement quotes it.
pub const TARGET_TEXT_BYTES_MAX: usize = 2048;
/// Bytes of a glob of a policy file.
pub const GLOB_BYTES_MAX: usize = 512;
/// Bytes of a regular expression of a policy file.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Bytes that a compiled regular expression of a policy file may take.
pub const PATTERN_COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of an argument that a regular expression of a policy file looks at; about a longer one it says nothing.
pub const PATTERN_INPUT_BYTES_MAX: usize = 64 * 1024;
/// The longest that a rule may let an approval wait.
pub const APPROVAL_TTL_MAX: Duration = Duration::from_hours(30 * 24);
/// Questions that one session may put to a person in a minute; a full message of calls fits.
pub const QUESTIONS_PER_MINUTE_MAX: usize = 40;
/// Questions of the last minute that a gate remembers over all sessions.
pub const QUESTIONS_REMEMBERED_MAX: usize = 8192;
/// Requests or decisions that one reply of the approval gate lists.
pub const APPROVALS_LISTED_MAX: usize = 500;
/// Bytes of arguments that one reply of the approval gate lists; further requests are left out.
pub const APPROVALS_LISTED_BYTES_MAX: usize = 1024 * 1024;
/// Decisions that a history lists when nothing else is asked for.
pub const APPROVALS_HISTORY_DEFAULT: usize = 50;
/// Sessions whose approvals a gate keeps in memory; of others it reads the log when it is asked.
pub const INBOX_SESSIONS_MAX: usize = 4096;
/// Bytes of arguments that a gate's inbox keeps in memory.
pub const INBOX_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Decided requests of one session that a gate keeps in memory.
pub const INBOX_DECIDED_MAX: usize = 64;
/// Turns for which a gate remembers the policy that they began with.
pub const POLICY_PINS_MAX: usize = 4096;
/// How often a gate looks whether its policy file has changed.
pub const POLICY_POLL_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether the configuration file has changed.
pub const CONFIG_FILE_POLL_EVERY: Duration = Duration::from_secs(2);
/// How often the live configuration is read without a word that it changed.
pub const CONFIG_READ_EVERY: Duration = Duration::from_secs(30);
/// How often a worker tries again what it could not take: what it lacked may have come.
pub const CONFIG_RETRY_EVERY: Duration = Duration::from_secs(2);
/// Refused changes of the configuration that a worker remembers.
pub const CONFIG_REFUSALS_MAX: usize = 16;
/// How long a decision waits for the commit that takes it.
pub const DECISION_WAIT: Duration = Duration::from_secs(10);

/// Heads that wait to be copied outside of their logs.
pub const HEADS_PENDING_MAX: usize = 4096;
/// Heads that are copied outside of their logs each time.
pub const HEADS_AT_ONCE_MAX: usize = 64;
/// How long a worker that makes notices of a commit may take; then another one gets it.
pub const FEED_WAIT: Duration = Duration::from_secs(10);

/// Sessions that one answer lists.
pub const SESSIONS_LISTED_MAX: u32 = 500;
/// Bytes of rows that one answer of the session worker lists; a longer list goes on in the next answer.
pub const LISTING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of the first words of a message in a list of sessions.
pub const PREVIEW_BYTES_MAX: usize = 160;
/// Messages, or commits with their events, that one answer holds.
pub const MESSAGES_LISTED_MAX: u32 = 1000;
/// Bytes of a search.
pub const QUERY_BYTES_MAX: usize = 1024;
/// Words and quoted parts of a search.
pub const QUERY_TERMS_MAX: usize = 32;
/// Places that one answer to a search holds.
pub const HITS_LISTED_MAX: u32 = 200;
/// Bytes around a place that was found.
pub const SNIPPET_BYTES_MAX: usize = 240;
/// Groups of one answer about costs.
pub const COST_ROWS_MAX: usize = 10_000;
