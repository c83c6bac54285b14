//! Variables in strings: `${NAME}` and `${file:/path}`, inserted verbatim. Every other `$` is text.

use std::path::Path;

/// What a string refers to beyond itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Expanded {
    pub text: String,
    /// Something came from a file or from a variable named like a secret.
    pub secret: bool,
    /// Something came from outside the file, so errors must not show the value.
    pub foreign: bool,
}

/// Why a reference could not be filled in. `reference` is how it is written, for pointing at it.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfilled {
    pub reference: String,
    pub message: String,
    pub help: String,
}

/// Where variables and files come from; tests bring their own.
pub trait World {
    fn variable(&self, name: &str) -> Option<String>;
    fn file(&self, path: &Path) -> std::io::Result<String>;
}

pub struct Process;

impl World for Process {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
}

/// Fills in all references, or says of each one that cannot be filled in why.
pub fn expand(text: &str, folder: &Path, world: &dyn World) -> Result<Expanded, Vec<Unfilled>> {
    let mut out = Expanded { text: String::with_capacity(text.len()), secret: false, foreign: false };
    let mut unfilled = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, tail) = rest.split_at(at);
        out.text.push_str(before);
        let Some(reference) = reference(tail) else {
            out.text.push_str("${");
            rest = &tail[2..];
            continue;
        };
        let written = &tail[..reference.length];
        match reference.fill(folder, world) {
            Ok(value) => {
                // Not scanned again: a `$` in a value is text.
                out.text.push_str(&value);
                out.secret |= reference.secret();
                out.foreign = true;
            }
            Err((message, help)) => unfilled.push(Unfilled { reference: written.into(), message, help }),
        }
        rest = &tail[reference.length..];
    }
    out.text.push_str(rest);
    if unfilled.is_empty() { Ok(out) } else { Err(unfilled) }
}

/// Text that somebody may have meant as a variable although it is none: `${NAME:-default}`, `${NAME`, `$NAME`
/// in braces of another kind stays silent.
pub fn suspicious(text: &str) -> Option<&str> {
    let (at, _) = text.match_indices("${").find(|(at, _)| {
        let tail = &text[*at..];
        reference(tail).is_none() && tail[2..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    })?;
    let tail = &text[at..];
    Some(tail.find('}').map_or(tail, |end| &tail[..=end]))
}

struct Reference<'a> {
    kind: Kind<'a>,
    /// With `${` and `}`.
    length: usize,
}

enum Kind<'a> {
    Variable(&'a str),
    File(&'a str),
}

fn reference(tail: &str) -> Option<Reference<'_>> {
    let inner = &tail[2..tail.find('}')?];
    let kind = match inner.strip_prefix("file:") {
        Some(path) if !path.is_empty() => Kind::File(path),
        _ if is_name(inner) => Kind::Variable(inner),
        _ => return None,
    };
    Some(Reference { kind, length: inner.len() + 3 })
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Reference<'_> {
    fn fill(&self, folder: &Path, world: &dyn World) -> Result<String, (String, String)> {
        match self.kind {
            Kind::Variable(name) => world.variable(name).ok_or_else(|| {
                (
                    format!("the environment variable {name} is not set"),
                    format!("set {name} in the environment of the host, or write the value here"),
                )
            }),
            Kind::File(path) => match world.file(&folder.join(path)) {
                Ok(mut text) => {
                    // Editors and `echo` end a file with a newline that is no part of the secret.
                    if text.ends_with('\n') {
                        text.pop();
                        if text.ends_with('\r') {
                            text.pop();
                        }
                    }
                    Ok(text)
                }
                Err(error) => Err((
                    format!("the file {path} cannot be read: {error}"),
                    "the path is taken from the folder of this file where it is relative".into(),
                )),
            },
        }
    }

    fn secret(&self) -> bool {
        match self.kind {
            Kind::File(_) => true,
            Kind::Variable(name) => {
                let name = name.to_ascii_uppercase();
                ["SECRET", "PASSWORD", "PASSWD", "TOKEN", "CREDENTIAL", "API_KEY"]
                    .iter()
                    .any(|mark| name.contains(mark))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl World for Fake {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "PLAIN" => Some("plain".into()),
                "ODD" => Some("a$b${PLAIN}$$c\\".into()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }

        fn file(&self, path: &Path) -> std::io::Result<String> {
            match path.to_str() {
                Some("/etc/app/key") => Ok("k1\n\n".into()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            }
        }
    }

    fn expanded(text: &str) -> String {
        expand(text, Path::new("/etc/app"), &Fake).unwrap().text
    }

    #[test]
    fn c03_values_are_inserted_verbatim_and_not_scanned_again() {
        assert_eq!(expanded("x${ODD}y${EMPTY}"), "xa$b${PLAIN}$$c\\y");
    }

    #[test]
    fn c03_only_the_braced_form_is_a_variable() {
        for text in ["$PLAIN", "pa$$word", "$", "${", "${}", "${1A}", "${PLAIN:-x}", "$(PLAIN)", "%PLAIN%", "${PLAIN"] {
            assert_eq!(expanded(text), text);
        }
    }

    #[test]
    fn c03_every_unset_variable_is_named() {
        let unfilled = expand("${NO_A}-${PLAIN}-${NO_B}", Path::new(""), &Fake).unwrap_err();
        let named: Vec<_> = unfilled.iter().map(|u| (u.reference.as_str(), u.message.as_str())).collect();
        assert_eq!(
            named,
            [
                ("${NO_A}", "the environment variable NO_A is not set"),
                ("${NO_B}", "the environment variable NO_B is not set"),
            ]
        );
    }

    #[test]
    fn a_file_loses_one_trailing_newline() {
        assert_eq!(expanded("${file:/etc/app/key}|${file:key}"), "k1\n|k1\n");
        assert!(expand("${file:key}", Path::new("/etc/app"), &Fake).unwrap().secret);
        assert!(expand("${file:none}", Path::new("/etc/app"), &Fake).unwrap_err()[0].message.contains("none"));
    }

    #[test]
    fn forms_of_other_tools_are_pointed_out() {
        assert_eq!(suspicious("a ${PORT:-80} b"), Some("${PORT:-80}"));
        assert_eq!(suspicious("a ${PORT"), Some("${PORT"));
        assert_eq!(suspicious("a ${PORT} $PORT $$ ${"), None);
    }
}
