//! Lines that a guest logs: bounded for each message, and kept for the report of a trap.

use ackwright_core::message::Message;
use tracing::Level;

/// Lines and bytes that one run may log; the rest is counted and dropped.
const LINES: usize = 200;
const BYTES: usize = 64 << 10;
/// The longest line, in bytes.
const LINE: usize = 8 << 10;

/// Who speaks.
#[derive(Clone, Copy)]
pub(crate) struct Speaker<'a> {
    pub plugin: &'a str,
    pub digest: &'a str,
    pub group: &'a str,
    pub message: &'a Message,
}

#[derive(Default)]
pub(crate) struct Budget {
    lines: usize,
    bytes: usize,
    dropped: usize,
    /// The last line of level error: a panic hook writes the panic's text there.
    pub last_error: Option<String>,
}

impl Budget {
    pub fn line(&mut self, speaker: Speaker<'_>, level: Level, text: &str, fields: &[(String, String)]) {
        let text = cut(text, LINE);
        if level == Level::ERROR {
            self.last_error = Some(text.to_owned());
        }
        let size = text.len() + fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if self.lines >= LINES || self.bytes + size.min(LINE) > BYTES {
            self.dropped += 1;
            return;
        }
        self.lines += 1;
        self.bytes += size.min(LINE);
        event(speaker, level, text, fields);
    }

    /// Says how much was cut, once, at the end of the run.
    pub fn close(&self, speaker: Speaker<'_>) {
        if self.dropped > 0 {
            tracing::warn!(
                target: "plugin",
                plugin = speaker.plugin,
                digest = speaker.digest,
                group = speaker.group,
                message_id = speaker.message.id.as_deref(),
                dropped = self.dropped,
                "log of the plugin is cut"
            );
        }
    }
}

/// The longest prefix of whole characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn event(speaker: Speaker<'_>, level: Level, text: &str, fields: &[(String, String)]) {
    macro_rules! at {
        ($level:expr) => {
            if tracing::enabled!(target: "plugin", $level) {
                let fields = render(fields);
                tracing::event!(
                    target: "plugin",
                    $level,
                    plugin = speaker.plugin,
                    digest = speaker.digest,
                    group = speaker.group,
                    source = speaker.message.source.as_str(),
                    message_id = speaker.message.id.as_deref(),
                    text,
                    fields,
                    "plugin log"
                );
            }
        };
    }
    match level {
        Level::TRACE => at!(Level::TRACE),
        Level::DEBUG => at!(Level::DEBUG),
        Level::INFO => at!(Level::INFO),
        Level::WARN => at!(Level::WARN),
        Level::ERROR => at!(Level::ERROR),
    }
}

/// One JSON object: names that a guest makes up cannot be names of tracing fields.
fn render(fields: &[(String, String)]) -> Option<String> {
    if fields.is_empty() {
        return None;
    }
    let object: serde_json::Map<_, _> =
        fields.iter().map(|(name, value)| (name.clone(), cut(value, LINE).into())).collect();
    Some(cut(&serde_json::Value::Object(object).to_string(), LINE).to_owned())
}
