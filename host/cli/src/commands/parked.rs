//! `ackwright parked list` and `parked show`.

use std::path::Path;

use ackwright_core::message::{Header, HeaderValue};
use ackwright_core::parked::{Filter, Listed, Shown};
use ackwright_core::store::State;
use anyhow::Context;
use base64::Engine;
use serde::Serialize;
use uuid::Uuid;

use super::{Outcome, stores, unmigrated};
use crate::args::{Parked, ParkedState, Scope};
use crate::config::Loaded;
use crate::output::{optional_time, print, print_json, short, table, time};

#[derive(Serialize)]
struct Row {
    database: String,
    #[serde(flatten)]
    row: Listed,
    first_seen: String,
}

#[derive(Serialize)]
struct Whole<'a> {
    database: &'a str,
    #[serde(flatten)]
    listed: &'a Listed,
    detail: Option<&'a str>,
    envelope: &'a ackwright_core::parked::Envelope,
    /// Absent for a tombstone.
    body_base64: Option<String>,
    /// Where the body is text.
    body_text: Option<&'a str>,
}

pub async fn parked(loaded: &Loaded, command: Parked, json: bool) -> anyhow::Result<Outcome> {
    match command {
        Parked::List { route, code, state, scope } => {
            let state = state.map(|state| match state {
                ParkedState::Parked => State::Failed,
                ParkedState::Waiting => State::Waiting,
            });
            list(loaded, Filter { route, code, state }, scope, json).await
        }
        Parked::Show { key, body_to, scope } => show(loaded, key, body_to.as_deref(), scope, json).await,
    }
}

async fn list(loaded: &Loaded, filter: Filter, scope: Scope, json: bool) -> anyhow::Result<Outcome> {
    let mut all = Vec::new();
    for (database, store) in stores(loaded, scope.database.as_deref())? {
        let rows = store.parked().list(&filter, scope.limit).await;
        let rows = unmigrated(rows, loaded, &database, "parked messages").await?;
        all.extend(rows.into_iter().map(|row| Row {
            database: database.clone(),
            first_seen: time(row.first_seen_at),
            row,
        }));
    }
    if json {
        print_json(&all)?;
    } else if all.is_empty() {
        print("no message is parked")?;
    } else {
        let headings = ["first seen", "state", "route", "code", "tries", "next", "message", "reason", "key"];
        let rows = all.iter().map(|r| {
            let row = &r.row;
            [
                r.first_seen.clone(),
                row.state.clone(),
                row.route.clone(),
                row.code.clone(),
                row.attempts.to_string(),
                optional_time(row.next_attempt_at),
                short(&row.label, 40),
                short(&row.reason, 60),
                row.key.to_string(),
            ]
        });
        print(&table(headings, rows))?;
    }
    Ok(Outcome::Done)
}

async fn show(loaded: &Loaded, key: Uuid, body_to: Option<&Path>, scope: Scope, json: bool) -> anyhow::Result<Outcome> {
    for (database, store) in stores(loaded, scope.database.as_deref())? {
        let shown = store.parked().show(key).await;
        let shown = unmigrated(shown, loaded, &database, "parked messages").await?;
        let Some(shown) = shown else { continue };
        if let Some(path) = body_to {
            let body = shown.body.as_deref().with_context(|| {
                format!("message {key} is a tombstone: it has no body, which is not the same as an empty one")
            })?;
            std::fs::write(path, body).with_context(|| format!("the body cannot be written to {}", path.display()))?;
        }
        if json {
            print_json(&whole(&database, &shown))?;
        } else {
            print(&human(&database, &shown))?;
        }
        return Ok(Outcome::Done);
    }
    anyhow::bail!("no message with the key {key} is parked")
}

fn whole<'a>(database: &'a str, shown: &'a Shown) -> Whole<'a> {
    Whole {
        database,
        listed: &shown.listed,
        detail: shown.detail.as_deref(),
        envelope: &shown.envelope,
        body_base64: shown.body.as_ref().map(|body| base64::engine::general_purpose::STANDARD.encode(body)),
        body_text: shown.body.as_deref().and_then(|body| std::str::from_utf8(body).ok()),
    }
}

fn human(database: &str, shown: &Shown) -> String {
    let (listed, envelope) = (&shown.listed, &shown.envelope);
    let absent = || "-".to_owned();
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<14}{value}"));
    line("key", listed.key.to_string());
    line("message", listed.label.clone());
    line("state", listed.state.clone());
    line("code", listed.code.clone());
    line("reason", listed.reason.clone());
    line("database", database.to_owned());
    line("route", listed.route.clone());
    line("group", listed.group.clone());
    let plugin = format!("{} {}", listed.plugin, listed.digest);
    line("plugin", if listed.plugin.is_empty() { "- (no plugin saw it)".to_owned() } else { plugin });
    line("attempts", listed.attempts.to_string());
    line("deliveries", listed.deliveries.to_string());
    line("first seen", time(listed.first_seen_at));
    line("last attempt", time(listed.last_attempt_at));
    line("next attempt", optional_time(listed.next_attempt_at));
    line("source", envelope.source.clone());
    line("subject", envelope.subject.clone().unwrap_or_else(absent));
    line("message id", envelope.id.clone().unwrap_or_else(absent));
    line("message key", envelope.key.as_deref().map_or_else(absent, |key| String::from_utf8_lossy(key).into_owned()));
    line("content type", envelope.content_type.clone().unwrap_or_else(absent));
    line("published", optional_time(envelope.published_at));
    fields(&mut lines, "headers", &envelope.headers);
    fields(&mut lines, "properties", &envelope.properties);
    if let Some(detail) = &shown.detail {
        lines.push("detail:".into());
        lines.extend(detail.lines().map(|l| format!("  {l}")));
    }
    match shown.body.as_deref() {
        None => lines.push("body: none (a tombstone)".into()),
        Some([]) => lines.push("body: empty".into()),
        Some(body) => {
            lines.push(format!("body, {} bytes:", body.len()));
            lines.push(readable(body));
        }
    }
    lines.join("\n")
}

fn fields(lines: &mut Vec<String>, title: &str, headers: &[Header]) {
    if headers.is_empty() {
        return;
    }
    lines.push(format!("{title}:"));
    lines.extend(headers.iter().map(|h| format!("  {} = {}", h.name, value(&h.value))));
}

fn value(value: &HeaderValue) -> String {
    match value {
        HeaderValue::Text(text) => format!("{text:?}"),
        HeaderValue::Timestamp(micros) => time(*micros),
        HeaderValue::Bytes(bytes) => format!("0x{}", ackwright_core::base16::encode(bytes)),
        HeaderValue::Array(values) => format!("[{}]", values.iter().map(self::value).collect::<Vec<_>>().join(", ")),
        HeaderValue::Table(entries) => {
            let entries: Vec<_> = entries.iter().map(|h| format!("{} = {}", h.name, self::value(&h.value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Most bytes of a body that are shown; the whole of it goes to a file.
const SHOWN: usize = 16 << 10;

/// Text as it is, anything else as a hex dump.
fn readable(body: &[u8]) -> String {
    let part = &body[..body.len().min(SHOWN)];
    let rest = body.len() - part.len();
    let printable = |text: &str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    let mut shown = match std::str::from_utf8(part) {
        Ok(text) if printable(text) => text.to_owned(),
        // A character may have been cut at the end of what is shown.
        Err(error) if rest > 0 && error.error_len().is_none() => {
            String::from_utf8_lossy(&part[..error.valid_up_to()]).into_owned()
        }
        _ => part.chunks(16).enumerate().map(|(row, bytes)| hex_row(row * 16, bytes)).collect::<Vec<_>>().join("\n"),
    };
    if rest > 0 {
        shown.push_str(&format!("\n... and {rest} more bytes; --body-to writes all of them to a file"));
    }
    shown
}

fn hex_row(offset: usize, bytes: &[u8]) -> String {
    let hex: Vec<_> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let text: String =
        bytes.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' }).collect();
    format!("{offset:08x}  {:<47}  {text}", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_text_and_bytes_as_a_dump() {
        assert_eq!(readable("{\"é\": 1}\n".as_bytes()), "{\"é\": 1}\n");
        assert_eq!(readable(&[0, b'A', 0xff]), "00000000  00 41 ff                                         .A.");
    }

    #[test]
    fn a_long_body_says_how_much_is_left_out() {
        let body = "é".repeat(SHOWN);
        let shown = readable(body.as_bytes());
        assert!(shown.starts_with("éé"));
        assert!(shown.ends_with(&format!("... and {SHOWN} more bytes; --body-to writes all of them to a file")));
    }

    #[test]
    fn nested_header_values_are_readable() {
        let table = HeaderValue::Table(vec![Header { name: "count".into(), value: HeaderValue::I64(3) }]);
        assert_eq!(value(&HeaderValue::Array(vec![table, HeaderValue::Null])), "[{count = I64(3)}, Null]");
    }
}
