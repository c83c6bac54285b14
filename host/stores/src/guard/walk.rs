//! The walk over the syntax tree.

use std::ops::ControlFlow;

use ackwright_core::access::Right;
use ackwright_core::store::Purpose;
use sqlparser::ast::{
    Delete, Expr, FromTable, Function, Ident, Insert, ObjectName, ObjectNamePart, OnInsert, Query, Select, SetExpr,
    Statement, TableFactor, TableObject, TableWithJoins, Update, Value, ValueWithSpan, Visit, Visitor,
};
use sqlparser::dialect::{MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;

use super::{Dialect, LENGTH_LIMIT, Parsed, Refused, functions, refuse};

/// PostgreSQL cuts longer identifiers, so two that differ could name one table.
const IDENTIFIER_LIMIT: usize = 63;

pub(super) fn parse(sql: &str, dialect: Dialect, purpose: Purpose) -> Result<Parsed, Refused> {
    if sql.len() > LENGTH_LIMIT {
        return refuse("length", format!("the SQL has {} bytes; at most {LENGTH_LIMIT} are read", sql.len()));
    }
    if sql.contains('\0') {
        return refuse("syntax", "the SQL contains a NUL character");
    }
    let statement = one_statement(sql, dialect)?;
    let target = match (&statement, purpose) {
        (Statement::Query(query), Purpose::Query) => {
            no_writes(query)?;
            None
        }
        (Statement::Query(query), Purpose::Execute) => return refuse("statement", read_by_execute(query)),
        (Statement::Insert(insert), Purpose::Execute) => Some(insert_target(insert)?),
        (Statement::Update(update), Purpose::Execute) => Some(update_target(update)?),
        (Statement::Delete(delete), Purpose::Execute) => Some(delete_target(delete)?),
        (Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_), Purpose::Query) => {
            return refuse("statement", "query takes one SELECT; write with execute");
        }
        (other, _) => return refuse("statement", refused_statement(other, purpose)),
    };
    let mut walk = Walk { dialect, target, needs: Vec::new(), scopes: Vec::new(), statements: 0, calls: Vec::new() };
    if let ControlFlow::Break(refused) = statement.visit(&mut walk) {
        return Err(refused);
    }
    let needs = walk.needs;
    let printed = statement.to_string();
    // The printer is trusted only as far as its text reads back as the same tree.
    match one_statement(&printed, dialect) {
        Ok(again) if again == statement => {}
        _ => return refuse("syntax", "the SQL uses syntax that cannot be checked; write it more plainly"),
    }
    Ok(Parsed { sql: printed.into(), needs })
}

fn one_statement(sql: &str, dialect: Dialect) -> Result<Statement, Refused> {
    let parsed = match dialect {
        Dialect::Postgres => Parser::parse_sql(&PostgreSqlDialect {}, sql),
        Dialect::Sqlite => Parser::parse_sql(&SQLiteDialect {}, sql),
        Dialect::MySql => Parser::parse_sql(&MySqlDialect {}, sql),
    };
    match parsed {
        Err(error) => refuse("syntax", format!("the SQL cannot be parsed: {error}")),
        Ok(mut statements) => match (statements.pop(), statements.len()) {
            (Some(statement), 0) => Ok(statement),
            (None, _) => refuse("statement", "the SQL holds no statement"),
            (Some(_), more) => refuse("statement", format!("the SQL holds {} statements; one is taken", more + 1)),
        },
    }
}

fn refused_statement(statement: &Statement, purpose: Purpose) -> String {
    let text = statement.to_string();
    let verb: String = text.split_whitespace().next().unwrap_or_default().to_uppercase();
    let takes = match purpose {
        Purpose::Query => "query takes one SELECT",
        Purpose::Execute => "execute takes one INSERT, UPDATE or DELETE",
    };
    let why = match verb.as_str() {
        "BEGIN" | "START" | "COMMIT" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" | "END" | "ABORT" => {
            "; the host alone begins, commits and rolls back"
        }
        "SET" | "RESET" | "DISCARD" | "PRAGMA" | "USE" => "; settings of the session belong to the host",
        _ => "",
    };
    format!("{takes}, not {verb}{why}")
}

fn read_by_execute(query: &Query) -> &'static str {
    match *query.body {
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            "execute takes a plain INSERT, UPDATE or DELETE without WITH in front of it; use a subquery"
        }
        _ => "execute takes one INSERT, UPDATE or DELETE; read with query",
    }
}

fn no_writes(query: &Query) -> Result<(), Refused> {
    match *query.body {
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            refuse("statement", "query takes one SELECT; write with execute")
        }
        _ => Ok(()),
    }
}

const NO_RETURNING: &str = "execute answers with a number of rows: leave RETURNING out, or read with query";

fn insert_target(insert: &Insert) -> Result<&ObjectName, Refused> {
    if insert.or.is_some() || insert.ignore || insert.replace_into || insert.overwrite {
        return refuse(
            "statement",
            "INSERT OR .., INSERT IGNORE and REPLACE hide errors: use ON CONFLICT with its key",
        );
    }
    if insert.returning.is_some() || insert.output.is_some() {
        return refuse("statement", NO_RETURNING);
    }
    match &insert.on {
        None | Some(OnInsert::OnConflict(_) | OnInsert::DuplicateKeyUpdate(_)) => {}
        Some(_) => return refuse("statement", "this ON clause is not known"),
    }
    match &insert.table {
        TableObject::TableName(name) => Ok(name),
        _ => refuse("statement", "INSERT takes the name of a table"),
    }
}

fn update_target(update: &Update) -> Result<&ObjectName, Refused> {
    if update.or.is_some() {
        return refuse("statement", "UPDATE OR .. hides errors");
    }
    if update.returning.is_some() || update.output.is_some() {
        return refuse("statement", NO_RETURNING);
    }
    plain_table(&update.table, "UPDATE")
}

fn delete_target(delete: &Delete) -> Result<&ObjectName, Refused> {
    if delete.returning.is_some() || delete.output.is_some() {
        return refuse("statement", NO_RETURNING);
    }
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    match (delete.tables.as_slice(), from.as_slice()) {
        ([], [table]) => plain_table(table, "DELETE"),
        _ => refuse("statement", "DELETE takes one table"),
    }
}

fn plain_table<'a>(table: &'a TableWithJoins, verb: &str) -> Result<&'a ObjectName, Refused> {
    match &table.relation {
        TableFactor::Table { name, args: None, .. } if table.joins.is_empty() => Ok(name),
        _ => refuse("statement", format!("{verb} takes one table without joins")),
    }
}

struct Walk<'a> {
    dialect: Dialect,
    /// The table that is written, told from other mentions of it by its place in the tree.
    target: Option<&'a ObjectName>,
    needs: Vec<(String, Right)>,
    /// Queries that are open, outermost first.
    scopes: Vec<Scope>,
    statements: usize,
    /// Names in FROM that are calls.
    calls: Vec<*const ObjectName>,
}

/// Names that WITH gives inside one query.
///
/// **Invariant:** a name counts only from where the database counts it: without RECURSIVE, an earlier CTE that
/// uses the name of a later one means the table.
struct Scope {
    query: *const Query,
    names: Vec<String>,
    bodies: Vec<*const Query>,
    visible: usize,
    recursive: bool,
}

impl Walk<'_> {
    fn fold(&self, ident: &Ident) -> Result<String, Refused> {
        if ident.value.len() > IDENTIFIER_LIMIT {
            return refuse("name", format!("the name {:?} is longer than {IDENTIFIER_LIMIT} bytes", ident.value));
        }
        Ok(match (self.dialect, ident.quote_style) {
            (Dialect::Postgres, Some(_)) => ident.value.clone(),
            _ => ident.value.to_ascii_lowercase(),
        })
    }

    fn parts(&self, name: &ObjectName) -> Result<Vec<String>, Refused> {
        name.0
            .iter()
            .map(|part| match part {
                ObjectNamePart::Identifier(ident) => self.fold(ident),
                ObjectNamePart::Function(_) => refuse("name", format!("{name} is no plain name")),
            })
            .collect()
    }

    /// A function is known by its bare name, or by `pg_catalog.` and its bare name.
    fn function(&self, name: &ObjectName, allowed: fn(Dialect, &str) -> bool) -> Result<(), Refused> {
        let parts = self.parts(name)?;
        let bare = match parts.as_slice() {
            [bare] => bare,
            [schema, bare] if self.dialect == Dialect::Postgres && schema == "pg_catalog" => bare,
            _ => return refuse("function", format!("the function {name} is not on the list of pure functions")),
        };
        if allowed(self.dialect, bare) {
            return Ok(());
        }
        refuse("function", format!("the function {bare} is not on the list of pure functions{}", functions::hint(bare)))
    }

    fn relation(&mut self, name: &ObjectName) -> Result<(), Refused> {
        if self.calls.iter().any(|call| std::ptr::eq(*call, name)) {
            return Ok(());
        }
        let parts = self.parts(name)?;
        let written = self.target.is_some_and(|target| std::ptr::eq(target, name));
        if let ([bare], false) = (parts.as_slice(), written) {
            let is_cte = |scope: &Scope| {
                let visible = if scope.recursive { scope.names.len() } else { scope.visible };
                scope.names[..visible].contains(bare)
            };
            if self.scopes.iter().any(is_cte) {
                return Ok(());
            }
        }
        let (first, last) = (&parts[0], &parts[parts.len() - 1]);
        let system = |name: &str| match self.dialect {
            Dialect::Postgres => name.starts_with("pg_") || name == "information_schema",
            Dialect::Sqlite => name.starts_with("sqlite_") || name.starts_with("pragma_"),
            Dialect::MySql => matches!(name, "mysql" | "information_schema" | "performance_schema" | "sys"),
        };
        if system(first) || system(last) {
            return refuse("table", format!("{name} belongs to the database's own catalog"));
        }
        if last.starts_with("ackwright_") {
            return refuse("table", format!("{name} belongs to the host"));
        }
        if parts.len() > 2 {
            return refuse("table", format!("{name}: write a table as name or schema.name"));
        }
        let need = (parts.join("."), if written { Right::Write } else { Right::Read });
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
        Ok(())
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<(), Refused> {
        match factor {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                refuse("clause", "TABLESAMPLE draws rows by chance")
            }
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                self.calls.push(std::ptr::from_ref(name));
                self.function(name, functions::allowed_as_table)
            }
            // The relation itself is looked at by `relation`.
            TableFactor::Table { name: _, args: None, sample: None, .. } => Ok(()),
            TableFactor::Derived { sample: None, .. }
            | TableFactor::NestedJoin { .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::JsonTable { .. } => Ok(()),
            other => refuse("clause", format!("{other} is not taken here")),
        }
    }

    fn query(&mut self, query: &Query) -> Result<(), Refused> {
        if !query.locks.is_empty() {
            return refuse("clause", "FOR UPDATE and FOR SHARE are the host's: lock a row with get-for-update");
        }
        if query.settings.is_some() || query.format_clause.is_some() || query.for_clause.is_some() {
            return refuse("clause", "SETTINGS, FORMAT and FOR clauses are not taken");
        }
        if !query.pipe_operators.is_empty() {
            return refuse("clause", "pipe operators are not taken");
        }
        plain_body(&query.body)?;
        let mut names = Vec::new();
        let mut bodies = Vec::new();
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                names.push(self.fold(&cte.alias.name)?);
                bodies.push(std::ptr::from_ref::<Query>(&cte.query));
            }
        }
        if let Some(outer) = self.scopes.last_mut()
            && let Some(at) = outer.bodies.iter().position(|body| std::ptr::eq(*body, query))
        {
            outer.visible = at;
        }
        let recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        self.scopes.push(Scope { query: std::ptr::from_ref(query), names, bodies, visible: 0, recursive });
        Ok(())
    }

    fn left(&mut self, query: &Query) {
        if self.scopes.pop().is_some_and(|scope| !std::ptr::eq(scope.query, query)) {
            unreachable!("queries close in the order in which they opened");
        }
        if let Some(outer) = self.scopes.last_mut()
            && let Some(at) = outer.bodies.iter().position(|body| std::ptr::eq(*body, query))
        {
            outer.visible = at + 1;
        }
    }

    fn call(&self, function: &Function) -> Result<(), Refused> {
        self.function(&function.name, functions::allowed)
    }
}

/// `TABLE name` hides its table from the walk.
fn plain_body(body: &SetExpr) -> Result<(), Refused> {
    match body {
        SetExpr::Table(_) => refuse("clause", "TABLE name is not taken: write SELECT * FROM name"),
        SetExpr::SetOperation { left, right, .. } => {
            plain_body(left)?;
            plain_body(right)
        }
        SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => Ok(()),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            refuse("statement", "a statement that writes is not taken inside a query")
        }
    }
}

fn flow(result: Result<(), Refused>) -> ControlFlow<Refused> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(refused) => ControlFlow::Break(refused),
    }
}

impl Visitor for Walk<'_> {
    type Break = Refused;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Refused> {
        self.statements += 1;
        if self.statements > 1 {
            return flow(refuse("statement", format!("a statement inside another is not taken: {statement}")));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Refused> {
        flow(self.query(query))
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Refused> {
        self.left(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Refused> {
        if select.into.is_some() {
            return flow(refuse("clause", "SELECT INTO creates a table"));
        }
        if !select.optimizer_hints.is_empty() {
            return flow(refuse("clause", "optimizer hints are not taken"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Refused> {
        flow(self.factor(factor))
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Refused> {
        flow(self.relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Refused> {
        match expr {
            Expr::Function(function) => flow(self.call(function)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<Refused> {
        match &value.value {
            Value::Placeholder(text) if self.dialect == Dialect::Postgres && !numbered(text) => {
                flow(refuse("placeholder", format!("the placeholder {text} is not known: write $1, $2, ..")))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn numbered(placeholder: &str) -> bool {
    placeholder.strip_prefix('$').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
