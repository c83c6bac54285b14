//! Small pieces of SQL text that every database shares.

use std::borrow::Cow;

use ackwright_core::plan::Row;

/// An identifier in double quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text without NUL, which databases cannot hold; for the host's own notes, never for a plugin's values.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

/// The messages behind these rows, each once, in order.
pub(crate) fn origins<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<u32> {
    let mut origins: Vec<u32> = rows.into_iter().flat_map(|row| row.origins.iter().copied()).collect();
    origins.sort_unstable();
    origins.dedup();
    origins
}
