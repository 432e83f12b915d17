//! What is wrong with a log, in words: pure.

use teamster_core::turn::{Fold, State, salvage::gaps};
use teamster_mesh::log::Survey;
use teamster_protocol::SessionId;

use crate::witness::{self, Witness};

/// What is wrong with the log that a survey read, and where; `None` if nothing is. `bytes` are its commits with their sequences,
/// `seen` what was known of it before that.
pub(crate) fn damage(
    session: &SessionId,
    survey: &Survey,
    bytes: &[(u64, &[u8])],
    seen: &[Witness],
) -> Option<String> {
    let mut fold = Fold::new(State::new(session.clone()));
    for (seq, body) in bytes {
        fold.take(body, *seq);
        drop(fold.unload());
    }
    let mut words: Vec<String> = fold.broken().map(str::to_owned).into_iter().collect();
    if survey.is_end_unreadable {
        words.push(format!(
            "its end cannot be read, behind sequence {}",
            survey.last
        ));
    }
    if words.is_empty()
        && let Ok(state) = fold.finish()
    {
        words.extend(witness::missing(seen, bytes, &state));
        // Behind an acceptance what cannot be read is what was given up.
        if words.is_empty() && survey.unreadable > 0 && state.loss.is_none() {
            words.push("not all of it is handed out".to_owned());
        }
    }
    if words.is_empty() {
        return None;
    }
    if survey.unreadable > 0 {
        words.push(format!(
            "the server holds {} of its {} messages with damaged bytes",
            survey.unreadable, survey.stored
        ));
        let gaps = gaps(session, bytes);
        if !gaps.is_empty() {
            words.push(format!("missing: {}", gaps.join(", ")));
        }
    }
    Some(words.join("; "))
}
