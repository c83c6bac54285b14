//! Secrets: values that never appear in a log, an error, the API or on a terminal.
//!
//! **Invariant:** a secret leaves this type only through `expose`, and whatever is printed passes `scrub`, which
//! knows every secret that was read, so a library that prints its own input cannot leak one either.

use std::borrow::Cow;
use std::fmt;
use std::sync::RwLock;

/// Text that prints as `[secret]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

const SHOWN: &str = "[secret]";

/// Shorter ones would blot out ordinary words of the log, and protect nothing.
const LEAST: usize = 4;

static KNOWN: RwLock<Vec<String>> = RwLock::new(Vec::new());

impl Secret {
    /// Takes a secret and remembers it for `scrub`.
    pub fn new(text: String) -> Self {
        remember(&text);
        Secret(text)
    }

    /// Takes a URL; what is secret in it is the password and parameters named like one.
    pub fn url(text: String) -> Self {
        for range in secret_parts(&text) {
            remember(&text[range]);
        }
        Secret(text)
    }

    /// The text itself, for the one call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

/// Replaces every known secret in text that is about to be printed.
pub fn scrub(text: &str) -> Cow<'_, str> {
    let known = KNOWN.read().unwrap_or_else(|e| e.into_inner());
    let mut text = Cow::Borrowed(text);
    for secret in known.iter() {
        if text.contains(secret.as_str()) {
            text = Cow::Owned(text.replace(secret.as_str(), SHOWN));
        }
    }
    text
}

/// Covers what looks like a secret in the text of a configuration file, keeping every byte position, so that
/// error snippets can show the line. It works on lines, since a file that does not parse must not leak either.
pub fn mask(source: &str) -> String {
    let mut masked = source.as_bytes().to_vec();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        for range in secret_parts(line).into_iter().chain(secret_assignment(line)) {
            // A reference to a variable is no secret, and seeing it helps.
            if !line[range.clone()].starts_with("${") {
                masked[start + range.start..start + range.end].fill(b'*');
            }
        }
        start += line.len();
    }
    // Whole characters were replaced by as many bytes of ASCII.
    String::from_utf8(masked).unwrap_or_else(|_| "*".repeat(source.len()))
}

fn remember(text: &str) {
    let mut forms = vec![text.to_owned(), text.escape_debug().to_string(), percent_decoded(text)];
    forms.retain(|form| form.len() >= LEAST);
    let mut known = KNOWN.write().unwrap_or_else(|e| e.into_inner());
    for form in forms {
        if !known.contains(&form) {
            known.push(form);
        }
    }
    // Longer ones first: one may be a part of another.
    known.sort_by_key(|form| std::cmp::Reverse(form.len()));
}

/// Where a URL, or a line that holds one, has a password: between the first colon after `://` and the last `@`,
/// whatever is in between, since a password that breaks the URL must be covered too.
fn secret_parts(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    if let Some(authority) = line.find("://").map(|at| at + 3) {
        let colon = line[authority..].find(':').map(|at| authority + at + 1);
        if let (Some(from), Some(to)) = (colon, line.rfind('@'))
            && from < to
        {
            parts.push(from..to);
        }
    }
    for name in ["password=", "passwd=", "secret=", "token="] {
        for (at, _) in line.match_indices(name) {
            let from = at + name.len();
            let length = line[from..].find(['&', '"', '\'', ' ', '\n']).unwrap_or(line.len() - from);
            if length > 0 {
                parts.push(from..from + length);
            }
        }
    }
    parts
}

/// The text in quotes of a line like `secret = "..."`, also inside an inline table.
fn secret_assignment(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let lower = line.to_ascii_lowercase();
    for name in ["secret", "password", "passwd", "token"] {
        for (at, _) in lower.match_indices(name) {
            let after = at + name.len();
            let rest = line[after..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == '-');
            let Some(value) = rest.trim_start().strip_prefix('=').map(str::trim_start) else { continue };
            let Some(quote) = value.chars().next().filter(|c| ['"', '\''].contains(c)) else { continue };
            let from = line.len() - value.len() + 1;
            let length = line[from..].find(quote).unwrap_or(line[from..].trim_end().len());
            parts.push(from..from + length);
        }
    }
    parts
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c02_a_secret_prints_as_secret() {
        let secret = Secret::new("tr0ub4dor".into());
        assert_eq!(format!("{secret} {secret:?}"), "[secret] [secret]");
        assert_eq!(scrub("auth tr0ub4dor failed"), "auth [secret] failed");
    }

    #[test]
    fn c02_the_password_of_a_url_is_scrubbed_in_every_form() {
        let _url = Secret::url("postgres://me:p%40ss%22word@host/db?password=other1".into());
        assert_eq!(scrub(r#"a p%40ss%22word b p@ss"word c p@ss\"word d other1"#), {
            "a [secret] b [secret] c p@ss\\\"word d [secret]"
        });
    }

    #[test]
    fn c02_masking_keeps_positions_and_covers_broken_urls() {
        let source = "url = \"postgres://me:pa/s@s?#w@host/db\"\nsecret = 'é1'\nx = \"${SECRET}\"\npassword = \"${P}\"";
        let masked = mask(source);
        assert_eq!(masked.len(), source.len());
        assert_eq!(
            masked,
            "url = \"postgres://me:*********@host/db\"\nsecret = '***'\nx = \"${SECRET}\"\npassword = \"${P}\""
        );
    }
}
