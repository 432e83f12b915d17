//! `sessions search`: words in all transcripts.

use clap::Args;
use teamster_core::display;
use teamster_protocol::{SessionId, function::session::SearchRequest};

use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Format, Output},
        show,
    },
    client::Client,
};

/// Find messages by their words, the best match first.
#[derive(Debug, Args)]
pub(in crate::cli) struct Search {
    /// Words that must all be there; quote a part twice ('"like this"') to find it as it stands
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Only in this session
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
}

pub(super) async fn run(out: &Output, client: &Client, options: Search) -> Result<Exit, Failure> {
    let request = SearchRequest {
        query: options.query.join(" "),
        session_id: options.session,
        limit: Some(options.limit),
    };
    let reply = client.search(&request).await?;
    match out.format {
        Format::Json => out.document(&show::versioned(&reply))?,
        Format::JsonLines => {
            for hit in &reply.hits {
                out.document(hit)?;
            }
        }
        Format::Text => {
            for hit in &reply.hits {
                out.line(&format!(
                    "{}  {}  commit {}  {}",
                    show::moment(hit.at_ms),
                    display::terminal(hit.session_id.as_str()),
                    hit.n,
                    display::terminal(&hit.role),
                ))?;
                out.line(&format!(
                    "    {}",
                    display::terminal(&hit.snippet.replace('\n', " "))
                ))?;
            }
            if reply.hits.is_empty() {
                out.note("nothing was found");
            }
        }
    }
    Ok(Exit::Completed)
}
