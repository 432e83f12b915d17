//! How large the window of the configured model is believed to be: too small a belief ends long sessions early, too large a one lets
//! the server cut what it is sent.

use teamster_protocol::text;

use super::{Finding, State};
use crate::{cli::status::is_scripted, config::Config};

/// What is believed about the model of turns that name none; nothing where no model is asked.
pub(super) fn known(config: &Config) -> Option<Finding> {
    let model = &config.harness.default_model;
    let key = format!("context.windows.\"{model}\"");
    let key = text::operand(&key);
    if is_scripted(model) {
        return None;
    }
    teamster_router::install_tls();
    let stated = config.context.windows.get(model).copied();
    let card = teamster_router::Engine::new(&config.router).model(model);
    let tokens = stated.or_else(|| card.as_ref().ok()?.context_window);
    card.ok()?;
    Some(match tokens {
        Some(tokens) => Finding::new(
            "window",
            State::Ok,
            format_args!("{tokens} tokens for {model}"),
        ),
        None => Finding::new(
            "window",
            State::Warning,
            format_args!(
                "nobody says how large the window of {model} is; {} tokens are assumed",
                config.context.default_window
            ),
        )
        .hint(format_args!(
            "say how large it is: `teamster config set {key} TOKENS`, or context.windows in config.yaml"
        )),
    })
}
