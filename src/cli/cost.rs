//! `teamster cost`: tokens and money, by session, model and day.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use teamster_core::display;
use teamster_protocol::{
    SessionId,
    function::session::{CostBy, CostReply, CostRequest, CostRow, CostSum},
};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    reach::{self, Absent},
    show,
    status::{UNPRICED, grouped, money_cell},
    when::{self, When},
};

/// Add up tokens and money.
///
/// Days are those of a clock with the given offset from UTC; which offset your machine's time zone has at a past date is not
/// looked up. What deleted sessions spent is kept and counts, to the quarter of an hour. What a model without a known price used is counted in tokens and marked.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// What to group by, in this order
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "day,model"
    )]
    by: Vec<By>,
    /// From here on: 24h, 7d, 2w, or a date as 2026-11-30
    #[arg(long, value_name = "WHEN", value_parser = when::when)]
    since: Option<When>,
    /// Up to here, this moment or the beginning of this day
    #[arg(long, value_name = "WHEN", value_parser = when::when)]
    until: Option<When>,
    /// Only this session's
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// How far your clock is ahead of UTC
    #[arg(long, value_name = "+HH:MM", default_value = "+00:00", value_parser = when::offset, allow_hyphen_values = true)]
    utc_offset: i32,
}

/// What costs are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The session
    Session,
    /// The model
    Model,
    /// The day
    Day,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let request = request(&options, show::now_ms())?;
    let client = reach::client(global, out, Absent::Resume).await?;
    let reply = client.cost(&request).await?;
    match out.format {
        Format::Json => {
            let rows: Vec<Value> = reply.rows.iter().map(row).collect();
            out.document(&json!({
                "v": 1, "rows": rows, "total": sum(&reply.total), "incomplete": reply.incomplete,
            }))?;
        }
        Format::JsonLines => {
            for one in &reply.rows {
                out.document(&row(one))?;
            }
            let mut total = sum(&reply.total);
            if let Some(object) = total.as_object_mut() {
                object.insert("type".to_owned(), "total".into());
            }
            out.document(&total)?;
        }
        Format::Text => {
            out.text(&table(&request.by, &reply))?;
            if reply.total.unpriced > 0 {
                out.note(UNPRICED);
            }
        }
    }
    if reply.incomplete > 0 {
        out.note(&format!(
            "at least: {} damaged, so that not all can be read that was spent; `teamster doctor` and `teamster sessions ls` name \
             what is damaged",
            match reply.incomplete {
                1 => "the log of 1 session is or was".to_owned(),
                count => format!("the logs of {count} sessions are or were"),
            }
        ));
    }
    Ok(Exit::Completed)
}

fn request(options: &Options, now_ms: u64) -> Result<CostRequest, Failure> {
    let at = |when: Option<When>| when.map(|when| when.at(now_ms, options.utc_offset));
    let (since_ms, until_ms) = (at(options.since), at(options.until));
    if since_ms
        .zip(until_ms)
        .is_some_and(|(since, until)| since >= until)
    {
        return Err(
            Failure::usage("cli.usage", "--until does not lie behind --since")
                .hint("--since says where to begin, --until where to end"),
        );
    }
    let mut by = Vec::new();
    for wanted in &options.by {
        let wanted = match wanted {
            By::Session => CostBy::Session,
            By::Model => CostBy::Model,
            By::Day => CostBy::Day,
        };
        if !by.contains(&wanted) {
            by.push(wanted);
        }
    }
    Ok(CostRequest {
        by,
        session_id: options.session.clone(),
        since_ms,
        until_ms,
        utc_offset_minutes: options.utc_offset,
    })
}

fn row(row: &CostRow) -> Value {
    let mut value = sum(&row.sum);
    if let Some(object) = value.as_object_mut() {
        if let Some(session) = &row.session_id {
            object.insert("session".to_owned(), json!(session));
            object.insert("deleted".to_owned(), json!(row.deleted));
        }
        if let Some(model) = &row.model {
            object.insert("model".to_owned(), json!(model));
        }
        if let Some(day) = &row.day {
            object.insert("day".to_owned(), json!(day));
        }
    }
    value
}

/// The known money exactly, in billionths and in dollars; whether that is all of it.
fn sum(sum: &CostSum) -> Value {
    json!({
        "generations": sum.generations,
        "attempts": sum.attempts,
        "usage": sum.usage,
        "cost_nano_usd": sum.cost.0,
        "cost_usd": sum.cost.as_usd(),
        "unpriced": sum.unpriced,
    })
}

/// The table for people: what it is grouped by, requests, tokens, money, and a last row for all.
fn table(by: &[CostBy], reply: &CostReply) -> String {
    let mut header: Vec<String> = by.iter().map(show::word).collect();
    header.extend(["requests", "input", "cached", "output", "cost"].map(str::to_owned));
    let mut rows = vec![header];
    for one in &reply.rows {
        let names = by.iter().map(|by| match by {
            CostBy::Session => {
                let name = one.session_id.as_ref().map_or("-", SessionId::as_str);
                let mark = if one.deleted { " (deleted)" } else { "" };
                format!("{}{mark}", display::terminal(name))
            }
            CostBy::Model => display::terminal(one.model.as_deref().unwrap_or("-")),
            CostBy::Day => display::terminal(one.day.as_deref().unwrap_or("-")),
        });
        let mut cells: Vec<String> = names.collect();
        cells.extend(figures(&one.sum));
        rows.push(cells);
    }
    let mut last: Vec<String> = by.iter().map(|_| String::new()).collect();
    if let Some(first) = last.first_mut() {
        "total".clone_into(first);
    }
    last.extend(figures(&reply.total));
    rows.push(last);
    aligned(&rows, by.len())
}

fn figures(sum: &CostSum) -> [String; 5] {
    let about = if sum.usage.estimated { "~" } else { "" };
    let number = |tokens: u64| format!("{about}{}", grouped(tokens));
    let input = sum.usage.input.saturating_add(sum.usage.cache_write);
    [
        grouped(sum.attempts),
        number(input),
        number(sum.usage.cache_read),
        number(sum.usage.output.saturating_add(sum.usage.reasoning)),
        money_cell(sum.cost, sum.unpriced > 0),
    ]
}

/// Columns side by side: the first `names` to the left, figures to the right.
fn aligned(rows: &[Vec<String>], names: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column < names {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use teamster_protocol::usage::{NanoUsd, Usage};

    use super::*;

    #[test]
    fn the_table_has_a_total_and_marks_what_has_no_price() {
        let sum = |cost, unpriced| CostSum {
            generations: 1,
            attempts: 2,
            usage: Usage {
                input: 1000,
                output: 20,
                ..Usage::default()
            },
            cost: NanoUsd(cost),
            unpriced,
        };
        let reply = CostReply {
            rows: [("a/b", 1_500_000), ("c/d", 0)]
                .map(|(model, cost)| CostRow {
                    session_id: None,
                    deleted: false,
                    model: Some(model.to_owned()),
                    day: Some("2026-11-30".to_owned()),
                    sum: sum(cost, 1),
                })
                .into(),
            total: sum(1_500_000, 1),
            incomplete: 0,
        };
        let text = table(&[CostBy::Day, CostBy::Model], &reply);
        let want = "\
day         model  requests  input  cached  output       cost
2026-11-30  a/b           2  1,000       0      20   $0.0015*
2026-11-30  c/d           2  1,000       0      20  unpriced*
total                     2  1,000       0      20   $0.0015*
";
        assert_eq!(text, want);
    }
}
