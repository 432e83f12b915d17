//! `sessions rename` and `sessions set-meta`: a session's title and its notes.

use std::collections::BTreeMap;

use clap::Args;
use teamster_core::display;
use teamster_protocol::{
    SessionId,
    function::session::{ChangeReply, SetMetaRequest},
    limits,
};

use crate::{
    cli::{exit::Exit, failure::Failure, output::Output, show},
    client::Client,
};

/// Give a session a title.
#[derive(Debug, Args)]
pub(in crate::cli) struct Rename {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// The new title
    #[arg(value_name = "TITLE", value_parser = title)]
    title: String,
}

/// Set or remove notes of a session, for lists and filters. No model reads them.
#[derive(Debug, Args)]
pub(in crate::cli) struct SetMeta {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// A note; an empty value removes it
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = pair)]
    notes: Vec<(String, String)>,
}

pub(super) async fn rename(
    out: &Output,
    client: &Client,
    options: Rename,
) -> Result<Exit, Failure> {
    let request = SetMetaRequest {
        session_id: options.session,
        title: Some(options.title),
        metadata: BTreeMap::new(),
    };
    change(out, client, &request).await
}

pub(super) async fn set(out: &Output, client: &Client, options: SetMeta) -> Result<Exit, Failure> {
    let notes = options.notes.into_iter();
    let request = SetMetaRequest {
        session_id: options.session,
        title: None,
        metadata: notes
            .map(|(name, value)| (name, (!value.is_empty()).then_some(value)))
            .collect(),
    };
    change(out, client, &request).await
}

async fn change(out: &Output, client: &Client, request: &SetMetaRequest) -> Result<Exit, Failure> {
    let reply = client.set_meta(request).await?;
    told(out, &reply, "changed")
}

/// What became of a change.
pub(super) fn told(out: &Output, reply: &ChangeReply, word: &str) -> Result<Exit, Failure> {
    if !out.is_text() {
        out.document(&show::versioned(reply))?;
        return Ok(Exit::Completed);
    }
    let session = display::terminal(reply.session_id.as_str());
    match reply.commit {
        Some(commit) => out.line(&format!("{session} {word} (commit {commit})"))?,
        None => out.line(&format!(
            "{session}: stored; it will be {word} as soon as a harness takes it up"
        ))?,
    }
    Ok(Exit::Completed)
}

/// Reads `key=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let max = limits::METADATA_BYTES_MAX;
    match text.split_once('=') {
        Some(("", _)) => Err("the key is empty; write key=value".to_owned()),
        Some((name, value)) if name.len() > max || value.len() > max => {
            Err(format!("a key or a value has at most {max} bytes"))
        }
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("write key=value".to_owned()),
    }
}

/// Reads a title.
pub(in crate::cli) fn title(text: &str) -> Result<String, String> {
    if (1..=limits::TITLE_BYTES_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a title has 1 to {} bytes",
        limits::TITLE_BYTES_MAX
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_pairs_and_titles_are_short() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        for wrong in ["", "a", "=b"] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
        assert!(pair(&format!("a={}", "x".repeat(limits::METADATA_BYTES_MAX + 1))).is_err());
        assert!(title("").is_err() && title("t").is_ok());
        assert!(title(&"中".repeat(limits::TITLE_BYTES_MAX)).is_err());
    }
}
