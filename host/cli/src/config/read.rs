//! Reading TOML values into Rust values: a mistake is noted and reading goes on, so that all are reported.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml_span::value::{Table, Value, ValueInner};

use super::expand::{self, World};
use super::mistake::{Mistake, Source};
use super::secret::Secret;
use super::units;

/// A value with its place, for checks that run later.
#[derive(Clone, Debug)]
pub struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// What readers share: the file, the world that variables come from, and the mistakes found so far.
pub struct Reading<'a> {
    pub source: &'a Source,
    pub folder: PathBuf,
    pub world: &'a dyn World,
    mistakes: RefCell<Vec<Mistake>>,
}

/// One value under one key.
pub struct Item<'de> {
    /// As messages name it: `database.main.url`.
    pub name: String,
    pub key: Range<usize>,
    pub span: Range<usize>,
    pub value: ValueInner<'de>,
}

/// A string with its references filled in.
pub struct Text {
    pub text: String,
    pub foreign: bool,
    pub secret: bool,
    pub span: Range<usize>,
}

impl<'a> Reading<'a> {
    pub fn new(source: &'a Source, world: &'a dyn World) -> Self {
        let folder = source.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Reading { source, folder: folder.to_owned(), world, mistakes: RefCell::default() }
    }

    pub fn note(&self, mistake: Mistake) {
        self.mistakes.borrow_mut().push(mistake);
    }

    pub fn finish(self) -> Vec<Mistake> {
        self.mistakes.into_inner()
    }

    pub fn text(&self, item: Item<'_>) -> Option<Text> {
        let span = item.span.clone();
        let ValueInner::String(raw) = &item.value else {
            return self.wanted(&item, "text in quotes");
        };
        if let Some(suspect) = expand::suspicious(raw) {
            self.note(
                Mistake::warning(self.within(&span, suspect), format!("{suspect} is taken as it stands"))
                    .help("only ${NAME} and ${file:/path} are filled in; there are no defaults"),
            );
        }
        match expand::expand(raw, &self.folder, self.world) {
            Ok(expanded) => {
                Some(Text { text: expanded.text, foreign: expanded.foreign, secret: expanded.secret, span })
            }
            Err(unfilled) => {
                for one in unfilled {
                    let message = format!("{}: {}", item.name, one.message);
                    self.note(Mistake::error(self.within(&span, &one.reference), message).help(one.help));
                }
                None
            }
        }
    }

    pub fn string(&self, item: Item<'_>) -> Option<String> {
        self.text(item).map(|t| t.text)
    }

    /// Text that must say something.
    pub fn name(&self, item: Item<'_>) -> Option<At<String>> {
        let (name, key) = (item.name.clone(), item.key.clone());
        let text = self.text(item)?;
        if text.text.trim().is_empty() {
            self.note(Mistake::error(wider(&text.span, &key), format!("{name} is empty")));
            return None;
        }
        Some(At { value: text.text, span: text.span })
    }

    pub fn secret(&self, item: Item<'_>) -> Option<Secret> {
        let (name, key) = (item.name.clone(), item.key.clone());
        let text = self.text(item)?;
        if text.text.is_empty() {
            self.note(Mistake::error(wider(&text.span, &key), format!("{name} is empty")));
            return None;
        }
        Some(Secret::new(text.text))
    }

    pub fn path(&self, item: Item<'_>) -> Option<At<PathBuf>> {
        let name = self.name(item)?;
        Some(At { value: self.folder.join(&name.value), span: name.span })
    }

    pub fn boolean(&self, item: Item<'_>) -> Option<bool> {
        match item.value {
            ValueInner::Boolean(value) => Some(value),
            _ => self.wanted(&item, "true or false"),
        }
    }

    pub fn located_boolean(&self, item: Item<'_>) -> Option<At<bool>> {
        let span = item.span.clone();
        self.boolean(item).map(|value| At { value, span })
    }

    pub fn whole(&self, item: Item<'_>, range: RangeInclusive<i64>) -> Option<At<usize>> {
        let ValueInner::Integer(value) = item.value else {
            return self.wanted(&item, "a whole number");
        };
        if !range.contains(&value) {
            let message = format!("{} is out of range", item.name);
            let label = format!("a number from {} to {}", range.start(), range.end());
            self.note(Mistake::error(item.span, message).label(label));
            return None;
        }
        Some(At { value: usize::try_from(value).ok()?, span: item.span })
    }

    pub fn duration(&self, item: Item<'_>) -> Option<At<Duration>> {
        self.measured(item, "a duration with its unit, such as \"30s\"", "duration", units::duration)
    }

    pub fn size(&self, item: Item<'_>) -> Option<At<u64>> {
        self.measured(item, "a size with its unit, such as \"64MiB\"", "size", units::size)
    }

    fn measured<T>(
        &self,
        item: Item<'_>,
        wanted: &str,
        what: &str,
        parse: fn(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        if !matches!(item.value, ValueInner::String(_)) {
            return self.wanted(&item, wanted);
        }
        let name = item.name.clone();
        let text = self.text(item)?;
        match parse(&text.text) {
            Ok(value) => Some(At { value, span: text.span }),
            Err(why) => {
                // A value from elsewhere is not shown, and the reason quotes parts of it.
                let why = if text.foreign { "what the variable holds cannot be read as one".into() } else { why };
                self.note(Mistake::error(text.span, format!("{name} is no {what}")).label(why));
                None
            }
        }
    }

    pub fn address(&self, item: Item<'_>) -> Option<At<SocketAddr>> {
        let name = item.name.clone();
        let text = self.text(item)?;
        match text.text.parse() {
            Ok(value) => Some(At { value, span: text.span }),
            Err(_) => {
                let label = "an IP address and a port, such as \"127.0.0.1:8900\"";
                self.note(Mistake::error(text.span, format!("{name} is no address to listen on")).label(label));
                None
            }
        }
    }

    /// One of some words.
    pub fn choice<T: Copy>(&self, item: Item<'_>, choices: &[(&str, T)]) -> Option<At<T>> {
        let name = item.name.clone();
        let text = self.text(item)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text.text) {
            return Some(At { value: *value, span: text.span });
        }
        let known = choices.iter().map(|(word, _)| *word);
        let shown = if text.foreign { "what the variable holds".into() } else { format!("{:?}", text.text) };
        let mut mistake = Mistake::error(text.span, format!("{name} cannot be {shown}"))
            .label(format!("one of {}", listed(known.clone())));
        if let Some(near) = nearest(&text.text, known) {
            mistake = mistake.help(format!("did you mean {near:?}?"));
        }
        self.note(mistake);
        None
    }

    pub fn strings(&self, item: Item<'_>) -> Option<Vec<At<String>>> {
        self.list(item, "a list of texts", |item| self.name(item))
    }

    pub fn list<'de, T>(
        &self,
        item: Item<'de>,
        wanted: &str,
        mut read: impl FnMut(Item<'de>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let ValueInner::Array(values) = item.value else {
            return self.wanted(&item, wanted);
        };
        let mut all = Some(Vec::with_capacity(values.len()));
        for (index, mut value) in values.into_iter().enumerate() {
            let span: Range<usize> = value.span.into();
            let name = format!("{}[{index}]", item.name);
            // Later entries are read even where one is wrong.
            match (read(Item { name, key: span.clone(), span, value: value.take() }), &mut all) {
                (Some(value), Some(all)) => all.push(value),
                (Some(_), None) => {}
                (None, _) => all = None,
            }
        }
        all
    }

    pub fn fields<'r, 'de>(&'r self, item: Item<'de>) -> Option<Fields<'r, 'de>> {
        match item.value {
            ValueInner::Table(table) => {
                Some(Fields { reading: self, name: item.name, key: item.key, table, known: Vec::new() })
            }
            _ => self.wanted(&item, "a table"),
        }
    }

    /// Every entry of a table whose keys the user chooses; also the names alone, for checks of references.
    pub fn named<'r, 'de, T>(
        &'r self,
        item: Item<'de>,
        mut read: impl FnMut(&str, Fields<'r, 'de>) -> Option<T>,
    ) -> (BTreeMap<String, T>, BTreeMap<String, Range<usize>>) {
        let (mut all, mut names) = (BTreeMap::new(), BTreeMap::new());
        let Some(fields) = self.fields(item) else { return (all, names) };
        for (name, item) in fields.entries() {
            names.insert(name.clone(), item.key.clone());
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') || name.is_empty() {
                let message = format!("{name:?} cannot be a name");
                self.note(Mistake::error(item.key.clone(), message).label("letters, digits, `-` and `_`"));
            }
            let Some(fields) = self.fields(item) else { continue };
            if let Some(value) = read(&name, fields) {
                all.insert(name, value);
            }
        }
        (all, names)
    }

    /// Any TOML as JSON, with references in its strings filled in.
    pub fn json(&self, item: Item<'_>) -> Option<serde_json::Value> {
        use serde_json::Value as Json;
        let name = item.name.clone();
        Some(match item.value {
            ValueInner::Boolean(value) => Json::from(value),
            ValueInner::Integer(value) => Json::from(value),
            ValueInner::Float(value) => match serde_json::Number::from_f64(value) {
                Some(number) => Json::Number(number),
                None => {
                    self.note(Mistake::error(item.span, format!("{name} must be a finite number")));
                    return None;
                }
            },
            ValueInner::String(_) => {
                let text = self.text(item)?;
                if text.secret { Json::from(Secret::new(text.text).expose()) } else { Json::from(text.text) }
            }
            ValueInner::Array(_) => Json::Array(self.list(item, "a list", |item| self.json(item))?),
            ValueInner::Table(_) => {
                let mut all = Some(serde_json::Map::new());
                for (key, item) in self.fields(item)?.entries() {
                    match (self.json(item), &mut all) {
                        (Some(value), Some(all)) => drop(all.insert(key, value)),
                        (Some(_), None) => {}
                        (None, _) => all = None,
                    }
                }
                Json::Object(all?)
            }
        })
    }

    pub fn wanted<T>(&self, item: &Item<'_>, wanted: &str) -> Option<T> {
        let found = match &item.value {
            ValueInner::String(_) => "text",
            ValueInner::Integer(_) => "a whole number",
            ValueInner::Float(_) => "a number",
            ValueInner::Boolean(_) => "true or false",
            ValueInner::Array(_) => "a list",
            ValueInner::Table(_) => "a table",
        };
        let span = match &item.value {
            // The span of a table reaches over all of it.
            ValueInner::Table(_) => item.key.clone(),
            _ => wider(&item.span, &item.key),
        };
        self.note(Mistake::error(span, format!("{} must be {wanted}", item.name)).label(format!("this is {found}")));
        None
    }

    /// The place of `part` inside the value at `span`, where the source shows it as it is.
    fn within(&self, span: &Range<usize>, part: &str) -> Range<usize> {
        match self.source.text.get(span.clone()).and_then(|text| text.find(part)) {
            Some(at) => span.start + at..span.start + at + part.len(),
            None => span.clone(),
        }
    }
}

/// A table whose keys are known. Whatever nobody asked for is an error.
pub struct Fields<'r, 'de> {
    reading: &'r Reading<'r>,
    pub name: String,
    pub key: Range<usize>,
    table: Table<'de>,
    known: Vec<&'static str>,
}

impl<'r, 'de> Fields<'r, 'de> {
    pub fn root(reading: &'r Reading<'r>, mut value: Value<'de>) -> Self {
        let table = match value.take() {
            ValueInner::Table(table) => table,
            // A TOML document is a table.
            _ => Table::new(),
        };
        Fields { reading, name: String::new(), key: 0..0, table, known: Vec::new() }
    }

    pub fn reading(&self) -> &'r Reading<'r> {
        self.reading
    }

    pub fn take(&mut self, key: &'static str) -> Option<Item<'de>> {
        self.known.push(key);
        let (key, mut value) = self.table.remove_entry(key)?;
        Some(Item { name: self.path(&key.name), key: key.span.into(), span: value.span.into(), value: value.take() })
    }

    /// `None` where it is absent or wrong; what is wrong was noted.
    pub fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'r Reading<'r>, Item<'de>) -> Option<T>,
    ) -> Option<T> {
        let item = self.take(key)?;
        read(self.reading, item)
    }

    pub fn required<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&'r Reading<'r>, Item<'de>) -> Option<T>,
    ) -> Option<T> {
        match self.take(key) {
            Some(item) => read(self.reading, item),
            None => {
                let message = format!("{} is missing", self.path(key));
                self.reading.note(
                    Mistake::error(self.key.clone(), message).help(format!("add a line such as: {key} = {example}")),
                );
                None
            }
        }
    }

    /// Ends the table: keys that are left are unknown.
    pub fn finish(self) {
        for key in self.table.keys() {
            let place = if self.name.is_empty() { "at the top level".into() } else { format!("in [{}]", self.name) };
            let mut mistake = Mistake::error(key.span.into(), format!("unknown key `{}` {place}", key.name));
            match nearest(&key.name, self.known.iter().copied()) {
                Some(near) => mistake = mistake.label(format!("did you mean `{near}`?")),
                None => mistake = mistake.label("nothing reads this"),
            }
            self.reading.note(mistake.help(format!("known keys: {}", listed(self.known.iter().copied()))));
        }
    }

    /// All entries in the order of the file, for tables whose keys the user chooses.
    pub fn entries(self) -> Vec<(String, Item<'de>)> {
        let name = self.name;
        let mut entries: Vec<_> = self
            .table
            .into_iter()
            .map(|(key, mut value)| {
                let item = Item {
                    name: if name.is_empty() { key.name.to_string() } else { format!("{name}.{}", key.name) },
                    key: key.span.into(),
                    span: value.span.into(),
                    value: value.take(),
                };
                (key.name.into_owned(), item)
            })
            .collect();
        entries.sort_by_key(|(_, item)| item.key.start);
        entries
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

/// The known name that a misspelled one most likely meant.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let fold = |text: &str| text.to_lowercase().replace(['-', '.', ' '], "_");
    let name = fold(name);
    known
        .map(|k| (k, strsim::damerau_levenshtein(&fold(k), &name)))
        .filter(|(k, distance)| *distance <= (k.len().max(name.len()) / 3).max(1))
        .min_by_key(|(_, distance)| *distance)
        .map(|(k, _)| k)
}

pub fn listed<'k>(words: impl Iterator<Item = &'k str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// An empty value has no width to point at, so its key is pointed at instead.
fn wider(span: &Range<usize>, key: &Range<usize>) -> Range<usize> {
    if span.is_empty() { key.clone() } else { span.clone() }
}
