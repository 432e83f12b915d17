//! Names of spans, attributes and figures. What the conventions of OpenTelemetry name (semantic conventions 1.37, generative
//! AI, status *development*) has their name; everything else begins with `teamster.`.

/// What a span of generative AI does.
pub const OPERATION: &str = "gen_ai.operation.name";
/// [`OPERATION`] of a turn.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// [`OPERATION`] of a request to a model.
pub const CHAT: &str = "chat";
/// [`OPERATION`] of a call of a function that a model asked for.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// Name of the span of a request that a worker serves; the function is an attribute.
pub const SERVE: &str = "serve";
/// Name of the span in which a router makes a completion.
pub const GENERATE: &str = "generate";

/// Who answers for the model.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The model that was asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Why a model stopped: a list.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Tokens read, cached ones included.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens written.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Tokens read from the provider's cache.
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// The session.
pub const CONVERSATION: &str = "gen_ai.conversation.id";
/// The agent.
pub const AGENT: &str = "gen_ai.agent.name";
/// The function.
pub const TOOL: &str = "gen_ai.tool.name";
/// The call.
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
/// What kind of tool it is.
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
/// Stable code of what went wrong; its presence makes the span one that failed.
pub const ERROR_TYPE: &str = "error.type";

/// The session, as log lines call it.
pub const SESSION: &str = "session";
/// The turn, as log lines call it.
pub const TURN: &str = "turn";
/// The call, as log lines call it.
pub const CALL: &str = "call";
/// The turn's number in its session.
pub const TURN_NUMBER: &str = "teamster.turn.number";
/// The request to a model, as log lines call it.
pub const REQUEST: &str = "request";
/// The step of the turn.
pub const STEP: &str = "teamster.step";
/// Steps of the turn.
pub const STEPS: &str = "teamster.steps";
/// Takeovers of the turn when the span began.
pub const ATTEMPT: &str = "teamster.attempt";
/// Requests that reached the provider.
pub const PROVIDER_ATTEMPTS: &str = "teamster.provider.attempts";
/// How the turn ended.
pub const STATUS: &str = "teamster.status";
/// What a call came to.
pub const OUTCOME: &str = "teamster.outcome";
/// Money in US dollars, as far as known.
pub const COST_USD: &str = "teamster.cost_usd";

/// Figure: how long a request to a model took, in seconds.
pub const METRIC_OPERATION: &str = "gen_ai.client.operation.duration";
/// Figure: tokens of a request to a model.
pub const METRIC_TOKENS: &str = "gen_ai.client.token.usage";
/// Which tokens: `input` or `output`.
pub const TOKEN_TYPE: &str = "gen_ai.token.type";
/// Figure: how long a turn took, waits for people included, in seconds.
pub const METRIC_TURN: &str = "teamster.turn.duration";
/// Figure: how long a call took, in seconds.
pub const METRIC_CALL: &str = "teamster.call.duration";
