//! What commands print: tables for people, JSON for scripts.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use crate::config::secret::scrub;

/// Whether colours may be used on this stream.
pub fn colours(stream: &impl IsTerminal) -> bool {
    // https://no-color.org: any value but an empty one.
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Rows under headings; as wide as the terminal, or as the content where it is none.
pub fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(headings.map(str::to_uppercase));
    for row in rows {
        table.add_row(row);
    }
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.trim_fmt()
}

/// A closed pipe is the reader's way to say that it has seen enough.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(scrub(text).as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Microseconds since the Unix epoch as RFC 3339 in UTC.
pub fn time(micros: i64) -> String {
    match jiff::Timestamp::from_microsecond(micros) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => format!("{micros} us"),
    }
}

pub fn optional_time(micros: Option<i64>) -> String {
    micros.map_or_else(|| "-".into(), time)
}

/// At most so many characters, with an ellipsis where some are left out.
pub fn short(text: &str, most: usize) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() > most {
        line = line.chars().take(most.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// `1 route`, `2 routes`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// An error and its causes, each once, one a line.
pub fn chain(error: &anyhow::Error) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // A cause that its parent quotes whole says nothing new.
        if lines.last().is_none_or(|last| !last.contains(&text)) {
            lines.push(text);
        }
    }
    scrub(&lines.join("\n  because: ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        assert_eq!(time(1_700_000_000_123_456), "2023-11-14T22:13:20.123Z");
        assert_eq!(optional_time(None), "-");
    }

    #[test]
    fn a_short_text_is_one_line() {
        assert_eq!(short("a\nb", 10), "a b");
        assert_eq!(short("äöüß", 3), "äö…");
    }

    #[test]
    fn a_chain_says_each_thing_once() {
        let error = anyhow::anyhow!("refused").context("cannot connect: refused").context("database \"main\"");
        assert_eq!(chain(&error), "database \"main\"\n  because: cannot connect: refused");
    }
}
