//! The guard: SQL of plugins is parsed, and only what can neither leave its transaction nor touch an ungranted
//! table gets through.
//!
//! **Invariant:** what runs is the text that the syntax tree prints, never the text that the plugin sent, so the
//! database cannot read it in another way than the guard did.

mod functions;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ackwright_core::access::{Access, Denied, Right};
use ackwright_core::effect;
use ackwright_core::store::{Purpose, Statement};

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    Postgres,
    Sqlite,
    MySql,
}

/// Longer SQL is refused unread, in bytes.
pub const LENGTH_LIMIT: usize = 64 << 10;

/// Statements that are kept parsed; a plugin has few, so more than this means that it builds them from values.
const CACHE_LIMIT: usize = 1024;

/// Parses and admits statements of one database, remembering what it parsed.
#[derive(Debug)]
pub struct Guard {
    dialect: Dialect,
    parsed: Mutex<Known>,
}

/// What the guard found in a statement, by its purpose and text.
type Known = HashMap<(Purpose, String), Result<Arc<Parsed>, effect::Error>>;

/// A statement that is admissible for whoever holds the grants that it needs.
#[derive(Debug)]
struct Parsed {
    sql: Arc<str>,
    /// Tables by name, each with the rights that the statement takes on it.
    needs: Vec<(String, Right)>,
}

impl Guard {
    pub fn new(dialect: Dialect) -> Self {
        Guard { dialect, parsed: Mutex::default() }
    }

    /// Admits one SELECT (for reading) or one INSERT, UPDATE or DELETE over wholly granted tables.
    pub fn admit(&self, sql: &str, access: &Access, purpose: Purpose) -> Result<Statement, effect::Error> {
        let parsed = self.parsed(sql, purpose)?;
        let mut tables = Vec::with_capacity(parsed.needs.len());
        for (name, right) in &parsed.needs {
            let table = access.table(*right, name)?;
            if !access.whole(*right, table) {
                let verb = match right {
                    Right::Read => "read",
                    Right::Write => "write",
                };
                return Err(Denied::Grant { verb, what: name.clone() }.into());
            }
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        Ok(Statement { sql: Arc::clone(&parsed.sql), purpose, tables })
    }

    fn parsed(&self, sql: &str, purpose: Purpose) -> Result<Arc<Parsed>, effect::Error> {
        let key = (purpose, sql.to_owned());
        // A poisoned lock still holds whole entries.
        if let Some(known) = self.parsed.lock().unwrap_or_else(|e| e.into_inner()).get(&key) {
            return known.clone();
        }
        let parsed = walk::parse(sql, self.dialect, purpose)
            .map(Arc::new)
            .map_err(|refused| effect::Error::invalid(format!("sql:{}", refused.code), refused.reason));
        if sql.len() <= LENGTH_LIMIT {
            let mut cache = self.parsed.lock().unwrap_or_else(|e| e.into_inner());
            if cache.len() >= CACHE_LIMIT {
                cache.clear();
            }
            cache.insert(key, parsed.clone());
        }
        parsed
    }
}

/// Why SQL does not get through.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    /// Stable, for grouping: `syntax`, `statement`, `function`, ...
    code: &'static str,
    reason: String,
}

fn refuse<T>(code: &'static str, reason: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, reason: reason.into() })
}
