//! A program that embeds Teamster: a message in, the checked end and the answer out.
//!
//! ```sh
//! teamster up                                         # in one terminal
//! cargo run --example embed -- "what is in this directory?"
//! ```
//!
//! `TEAMSTER_NATS` says which mesh, `TEAMSTER_CREDS` where the operator's credentials lie.

use std::io::Write as _;

use teamster::client::{Client, Error, Item};
use teamster_mesh::Connect;
use teamster_protocol::{
    Event, Message, event::EndReason, function::harness::SendRequest, message::Content,
};

/// Sends a message and follows the log to the end of its turn: what counts stands there, whoever crashes meanwhile.
pub(crate) async fn ask(client: &Client, message: &str) -> Result<(EndReason, String), Error> {
    let sent = client
        .send(SendRequest {
            message: message.to_owned(),
            ..SendRequest::default()
        })
        .await?;
    let mut watch = client.watch(&sent.session_id, 0);
    let mut answer = String::new();
    loop {
        let Item::Commit { commit, .. } = watch.next().await? else {
            continue; // what is being generated, for the eye
        };
        for event in commit.events {
            match event {
                Event::GenerationFinished {
                    message: Some(Message::Assistant { content, .. }),
                    ..
                } => {
                    answer = content
                        .into_iter()
                        .filter_map(|part| match part {
                            Content::Text { text } => Some(text),
                            _ => None,
                        })
                        .collect();
                }
                Event::TurnEnded { reason, .. } => return Ok((reason, answer)),
                _ => {}
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(&Connect {
        url: std::env::var("TEAMSTER_NATS").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned()),
        credentials: std::env::var_os("TEAMSTER_CREDS").map(Into::into),
    })
    .await?;
    let message = std::env::args().nth(1).ok_or("give it a message")?;
    let (reason, answer) = ask(&client, &message).await?;
    writeln!(std::io::stdout(), "{answer}\n[{}]", reason.status())?;
    Ok(())
}
