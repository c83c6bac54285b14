//! What is wrong with a configuration, with the place of it, and how that is shown.

use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use super::secret::{mask, scrub};

/// A configuration file as it was read.
#[derive(Debug)]
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One mistake. Its texts quote names and what the file says, never a value that came from elsewhere.
#[derive(Clone, Debug)]
pub struct Mistake {
    pub severity: Severity,
    pub message: String,
    /// Bytes of the source; absent where the file as a whole is meant.
    pub span: Option<Range<usize>>,
    /// At the caret.
    pub label: Option<String>,
    pub help: Option<String>,
    /// A second place that explains the first.
    pub other: Option<(Range<usize>, String)>,
}

impl Mistake {
    pub fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        Mistake {
            severity: Severity::Error,
            message: message.into(),
            span: Some(span),
            label: None,
            help: None,
            other: None,
        }
    }

    pub fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Mistake { severity: Severity::Warning, ..Mistake::error(span, message) }
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub fn other(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.other = Some((span, label.into()));
        self
    }
}

/// All mistakes of a file.
#[derive(Debug)]
pub struct Report {
    pub source: Source,
    pub mistakes: Vec<Mistake>,
}

/// A mistake for scripts.
#[derive(Debug, Serialize)]
pub struct Plain {
    pub severity: Severity,
    pub file: PathBuf,
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    pub label: Option<String>,
    pub help: Option<String>,
}

impl Report {
    pub fn has_errors(&self) -> bool {
        self.mistakes.iter().any(|m| m.severity == Severity::Error)
    }

    /// In the order of the file.
    pub fn sort(&mut self) {
        self.mistakes.sort_by_key(|m| m.span.as_ref().map_or(0, |s| s.start));
    }

    /// One snippet with a caret for each mistake, then their number.
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
        let masked = mask(&self.source.text);
        let path = self.source.path.display().to_string();
        let mut out = String::new();
        for mistake in &self.mistakes {
            out.push_str(&scrub(&renderer.render(&[group(mistake, &masked, &path)])));
            out.push_str("\n\n");
        }
        out.push_str(&self.summary());
        out.push('\n');
        out
    }

    pub fn plain(&self) -> Vec<Plain> {
        self.mistakes
            .iter()
            .map(|m| {
                let place = m.span.as_ref().map(|s| place(&self.source.text, s.start));
                Plain {
                    severity: m.severity,
                    file: self.source.path.clone(),
                    line: place.map(|p| p.0),
                    column: place.map(|p| p.1),
                    message: scrub(&m.message).into_owned(),
                    label: m.label.as_deref().map(|t| scrub(t).into_owned()),
                    help: m.help.as_deref().map(|t| scrub(t).into_owned()),
                }
            })
            .collect()
    }

    fn summary(&self) -> String {
        let errors = self.mistakes.iter().filter(|m| m.severity == Severity::Error).count();
        let warnings = self.mistakes.len() - errors;
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let path = self.source.path.display();
        match (errors, warnings) {
            (0, w) => format!("{path}: {}", counted(w, "warning")),
            (e, 0) => format!("{path}: {}", counted(e, "error")),
            (e, w) => format!("{path}: {}, {}", counted(e, "error"), counted(w, "warning")),
        }
    }
}

fn group<'a>(mistake: &'a Mistake, text: &'a str, path: &'a str) -> annotate_snippets::Group<'a> {
    let level = match mistake.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(mistake.message.as_str());
    let mut group = match &mistake.span {
        None => annotate_snippets::Group::with_title(title).element(annotate_snippets::Origin::path(path)),
        Some(span) => {
            let mut primary = AnnotationKind::Primary.span(span.clone());
            if let Some(label) = &mistake.label {
                primary = primary.label(label.as_str());
            }
            let mut snippet = Snippet::source(text).path(path).annotation(primary);
            if let Some((span, label)) = &mistake.other {
                snippet = snippet.annotation(AnnotationKind::Context.span(span.clone()).label(label.as_str()));
            }
            title.element(snippet)
        }
    };
    if let Some(help) = &mistake.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    group
}

/// Line and column, both counted from 1; the column in characters.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// The file could not be read at all.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Report {
    let source = Source { path: path.to_owned(), text: String::new() };
    let help = match error.kind() {
        std::io::ErrorKind::NotFound => "name another file with --config",
        _ => "the host reads this file once at its start",
    };
    let mistake = Mistake {
        severity: Severity::Error,
        message: format!("the configuration cannot be read: {error}"),
        span: None,
        label: None,
        help: Some(help.into()),
        other: None,
    };
    Report { source, mistakes: vec![mistake] }
}
