//! Which changes of the configuration the running workers have not taken, and what is set live in the mesh.

use super::{Finding, State};
use crate::{
    cli::config,
    client::Client,
    config::{explain::Layer, section::SECTIONS},
};

/// Values set live that are named one by one.
const NAMED_MAX: usize = 5;

/// What the workers say about their sections.
pub(super) async fn configuration(client: &Client) -> Option<Finding> {
    let asked = SECTIONS.iter().map(|kind| config::status(client, kind));
    let told = futures::future::join_all(asked).await;
    let (mut refusals, mut set, mut answers) = (Vec::new(), Vec::new(), 0);
    for status in told.into_iter().flatten() {
        answers += 1;
        let values = status.values.into_iter();
        set.extend(
            values
                .filter(|value| matches!(value.layer, Layer::Live(_)))
                .map(|value| format!("{} = {}", value.key, value.value)),
        );
        for refusal in &status.refusals {
            let line = config::refused(refusal);
            // A file is the same for all workers of its process.
            if !refusals.contains(&line) {
                refusals.push(line);
            }
        }
    }
    if answers == 0 {
        // Workers that do not answer are a finding of their own.
        return None;
    }
    if !refusals.is_empty() {
        return Some(
            Finding::new("config-live", State::Failed, refusals.join("; ")).hint(
                "the last good values stay in force; `teamster config explain` shows them and where to correct the rest",
            ),
        );
    }
    let more = set.len().saturating_sub(NAMED_MAX);
    set.truncate(NAMED_MAX);
    let named = set.join(", ");
    let told = match (set.is_empty(), more) {
        (true, _) => "nothing is set in the mesh".to_owned(),
        (false, 0) => format!("set in the mesh: {named}"),
        (false, more) => format!("set in the mesh: {named} and {more} more"),
    };
    Some(Finding::new("config-live", State::Ok, told))
}
