//! `ackwright.toml`: read as a whole, checked as a whole, every mistake reported with its place.

mod cross;
pub mod expand;
mod flow;
pub mod mistake;
pub mod model;
mod read;
pub mod secret;
mod sections;
pub mod units;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml_span::{Error, ErrorKind};

use expand::World;
use mistake::{Mistake, Report, Source};
use model::Config;
use read::{Fields, Reading};

/// A configuration without errors; the report holds its warnings.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub report: Report,
}

/// The names that a file declares, also where a section has mistakes, so that these cause no further ones.
#[derive(Debug, Default)]
struct Declared {
    databases: BTreeMap<String, Range<usize>>,
    brokers: BTreeMap<String, Range<usize>>,
    plugins: BTreeMap<String, Range<usize>>,
}

pub fn load(path: &Path) -> Result<Loaded, Report> {
    let text = std::fs::read_to_string(path).map_err(|error| mistake::unreadable(path, &error))?;
    parse(Source { path: path.to_owned(), text }, &expand::Process)
}

pub fn parse(source: Source, world: &dyn World) -> Result<Loaded, Report> {
    let document = match toml_span::parse(&source.text) {
        Ok(document) => document,
        Err(error) => {
            let mistakes = vec![syntax(&error, &source.text)];
            return Err(Report { source, mistakes });
        }
    };
    let reading = Reading::new(&source, world);
    let mut root = Fields::root(&reading, document);
    let host = sections::host(&reading, root.take("host"));
    let (databases, database_names) =
        root.take("database").map(|item| reading.named(item, sections::database)).unwrap_or_default();
    let (brokers, broker_names) =
        root.take("broker").map(|item| reading.named(item, sections::broker)).unwrap_or_default();
    let (plugins, plugin_names) = root.take("plugin").map(|item| reading.named(item, flow::plugin)).unwrap_or_default();
    let (routes, route_names) = root.take("route").map(|item| reading.named(item, flow::route)).unwrap_or_default();
    root.finish();
    let config = Config { host, databases, brokers, plugins, routes };
    let declared = Declared { databases: database_names, brokers: broker_names, plugins: plugin_names };
    cross::check(&reading, &config, &declared, &route_names);
    let mistakes = reading.finish();
    let mut report = Report { source, mistakes };
    report.sort();
    if report.has_errors() { Err(report) } else { Ok(Loaded { config, report }) }
}

/// A file that is no TOML: its parser stops at the first mistake.
fn syntax(error: &Error, text: &str) -> Mistake {
    let mut span: Range<usize> = error.span.into();
    if span.is_empty() {
        // At the end of the file there is nothing to point at.
        span = text.len().saturating_sub(1)..text.len();
        span.start = text.floor_char_boundary(span.start);
    }
    match &error.kind {
        ErrorKind::DuplicateKey { key, first } => Mistake::error(span, format!("the key `{key}` is given twice"))
            .label("the second")
            .other((*first).into(), "the first"),
        ErrorKind::DuplicateTable { name, first } => Mistake::error(span, format!("the table [{name}] is given twice"))
            .label("the second")
            .other((*first).into(), "the first"),
        ErrorKind::Wanted { expected, found } => {
            Mistake::error(span, "this is no TOML").label(format!("{expected} is expected here, not {found}"))
        }
        ErrorKind::UnterminatedString => {
            Mistake::error(span, "this is no TOML").label("this text has no closing quote")
        }
        ErrorKind::UnquotedString => Mistake::error(span, "this is no TOML").label("text must be in quotes"),
        kind => Mistake::error(span, "this is no TOML").label(kind_text(kind)),
    }
}

fn kind_text(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::UnexpectedEof => "the file ends too early".into(),
        ErrorKind::InvalidCharInString(c) => format!("{c:?} cannot stand in a text"),
        ErrorKind::InvalidEscape(c) => format!("\\{c} is no escape sequence; a text in '...' has none"),
        ErrorKind::Unexpected(c) => format!("{c:?} is not expected here"),
        ErrorKind::InvalidNumber => "this is no number".into(),
        other => other.to_string().replace('-', " "),
    }
}
