//! A lane's session: one connection, at most one transaction.
//!
//! **Invariant:** a call takes the connection out and puts it back when it has its answer. A call that is dropped
//! half-way drops the connection with it, so the server rolls back and nobody meets the unread answer.

use std::sync::Arc;

use ackwright_core::catalog::{ColumnId, TableId};
use ackwright_core::effect::Cells;
use ackwright_core::key::DedupKey;
use ackwright_core::plan::{Group, Plan};
use ackwright_core::store::{self, ApplyError, Claim, Claimed, CommitError, Error, ReadError, Rows, State, Statement};
use ackwright_core::value::Value;
use ackwright_core::{outbox, parked};
use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Row as _, TypeInfo as _, ValueRef as _};

use super::native::{Native, Param};
use super::schema::Schema;
use super::wire::{Fault, Wire, classify, into_system, is_lost};
use super::write::Form;
use super::{Shared, inbox, refusal};
use crate::fault::{self, Broken};

pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    wire: Option<Wire>,
    schema: Option<Arc<Schema>>,
    /// A statement failed: until a savepoint is rolled back to, the transaction is dead.
    failed: bool,
    open: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Session { shared, wire: None, schema: None, failed: false, open: false }
    }

    /// The connection of the open transaction, to be put back with `keep`.
    fn take(&mut self, attempted: &str) -> Result<Wire, Error> {
        match self.wire.take() {
            Some(wire) if self.open && !self.failed => Ok(wire),
            Some(wire) if self.open => {
                self.wire = Some(wire);
                Err(fault::system(attempted, Broken::Failed))
            }
            _ => Err(fault::lost(attempted, Broken::Gone)),
        }
    }

    fn keep<T>(&mut self, wire: Wire, result: &Result<T, sqlx::Error>) {
        match result {
            Ok(_) => self.wire = Some(wire),
            Err(error) if is_lost(error) => self.open = false,
            Err(_) => {
                self.failed = true;
                self.wire = Some(wire);
            }
        }
    }

    pub(super) async fn rows(&mut self, attempted: &str, sql: &str, params: Vec<Param>) -> Result<Vec<PgRow>, Fault> {
        let mut wire = self.take(attempted).map_err(Fault::System)?;
        let result = wire.rows(sql, params).await;
        self.keep(wire, &result);
        result.map_err(|error| classify(attempted, error))
    }

    /// A statement of the host's own.
    pub(super) async fn own(&mut self, attempted: &str, sql: &str, params: Vec<Param>) -> Result<Vec<PgRow>, Error> {
        let mut wire = self.take(attempted)?;
        let result = wire.rows(sql, params).await;
        self.keep(wire, &result);
        result.map_err(|error| into_system(attempted, error))
    }

    async fn simple(&mut self, attempted: &str, sql: &str) -> Result<(), Fault> {
        let mut wire = self.take(attempted).map_err(Fault::System)?;
        let result = wire.simple(sql).await;
        self.keep(wire, &result);
        result.map_err(|error| classify(attempted, error))
    }

    fn schema(&self, attempted: &str) -> Result<Arc<Schema>, Error> {
        self.schema.clone().ok_or_else(|| fault::lost(attempted, Broken::Gone))
    }

    async fn group(&mut self, schema: &Schema, group: &Group) -> Result<(), ApplyError> {
        let table = schema.catalog.table(group.table);
        let attempted = format!("write {} rows of {}", group.rows.len(), table.name);
        let shape = schema.shape(group.table);
        let form = Form::of(group);
        let sql = self.shared.sql(&form, shape);
        let params = form.params(shape, &group.rows).map_err(|(row, why)| refusal::unsendable(row, table, &why))?;
        // A row of defaults alone has no input to make many of.
        let times = if params.is_empty() { group.rows.len() } else { 1 };
        let mut params = Some(params);
        let mut rows = Vec::new();
        for _ in 0..times {
            match self.rows(&attempted, &sql, params.take().unwrap_or_default()).await {
                Ok(found) => rows = found,
                Err(Fault::System(error)) => return Err(error.into()),
                Err(Fault::Refused(error)) => return Err(refusal::refused(&attempted, *error, Some((group, table)))),
            }
        }
        if form.counts() && rows.len() < group.rows.len() {
            let mut met = vec![false; group.rows.len()];
            for row in &rows {
                let ord: i64 = row.try_get(0).map_err(|e| fault::system(&attempted, e))?;
                met[ord as usize - 1] = true;
            }
            if let Some(at) = met.iter().position(|met| !met) {
                return Err(refusal::unmet(&group.rows[at], table, group.verb));
            }
        }
        Ok(())
    }

    /// Checks now what the schema would only check at commit, where a violation has no message any more.
    async fn check_deferred(&mut self, schema: &Schema, groups: &[Group]) -> Result<(), ApplyError> {
        let Some(names) = &schema.deferred else { return Ok(()) };
        const ATTEMPTED: &str = "check deferred constraints";
        let sql = format!("SET CONSTRAINTS {names} IMMEDIATE; SET CONSTRAINTS {names} DEFERRED");
        match self.simple(ATTEMPTED, &sql).await {
            Ok(()) => Ok(()),
            Err(Fault::System(error)) => Err(error.into()),
            Err(Fault::Refused(error)) => {
                let mut refused = refusal::refused(ATTEMPTED, *error, None);
                if let ApplyError::Refused(refusal) = &mut refused {
                    refusal.suspects = crate::sql::origins(groups.iter().flat_map(|g| &g.rows));
                }
                Err(refused)
            }
        }
    }

    /// Encodes a plugin's parameters as the server takes them.
    async fn encode(&mut self, statement: &Statement, values: &[Value]) -> Result<(Vec<Param>, Vec<String>), Encode> {
        const ATTEMPTED: &str = "prepare a plugin's statement";
        let mut wire = self.take(ATTEMPTED).map_err(|e| Encode::Fault(Fault::System(e)))?;
        let result = wire.describe(&statement.sql).await;
        self.keep(wire, &result);
        let described = result.map_err(|e| Encode::Fault(classify(ATTEMPTED, e)))?;
        if described.parameters.len() != values.len() {
            return Err(Encode::Invalid(format!(
                "the statement has {} parameters; {} were given",
                described.parameters.len(),
                values.len()
            )));
        }
        let mut params = Vec::with_capacity(values.len());
        for (at, ((oid, name), value)) in described.parameters.iter().zip(values).enumerate() {
            let number = at + 1;
            let Some(native) = Native::of(*oid) else {
                return Err(Encode::Invalid(format!(
                    "parameter ${number} is a {name}, which has no exact form here; \
                     write CAST(CAST(${number} AS text) AS {name})"
                )));
            };
            match Param::value(native, value) {
                Ok(param) => params.push(param),
                Err(why) => return Err(Encode::Invalid(format!("parameter ${number}: {why}"))),
            }
        }
        Ok((params, described.columns))
    }
}

enum Encode {
    Invalid(String),
    Fault(Fault),
}

/// Why a plugin's read failed: its own SQL, or the database.
fn read_error(fault: Fault) -> ReadError {
    match fault {
        Fault::System(error) => error.into(),
        Fault::Refused(error) => match error.as_database_error() {
            Some(database) => {
                ReadError::Invalid(format!("{} ({})", database.message(), database.code().unwrap_or_default()))
            }
            None => ReadError::Invalid(error.to_string()),
        },
    }
}

fn decode(row: &PgRow, at: usize, native: Option<Native>) -> Result<Value, ReadError> {
    let column = || row.columns().get(at).map_or("?", |c| sqlx::Column::name(c)).to_owned();
    let value = row.try_get_raw(at).map_err(|e| ReadError::Invalid(e.to_string()))?;
    let info = value.type_info();
    let native = native.or_else(|| info.oid().and_then(|oid| Native::of(oid.0)));
    if value.is_null() {
        return Ok(Value::Null);
    }
    let Some(native) = native else {
        return Err(ReadError::Invalid(format!(
            "column {} is a {}, which has no exact form here; write CAST({0} AS text)",
            column(),
            info.name()
        )));
    };
    let bytes = value.as_bytes().map_err(|e| ReadError::Invalid(e.to_string()))?;
    native.decode(bytes).map_err(|why| ReadError::Invalid(format!("column {}: {why}", column())))
}

#[async_trait]
impl store::Session for Session {
    async fn begin(&mut self) -> Result<(), Error> {
        const ATTEMPTED: &str = "begin a transaction";
        // A transaction that was left open goes with its connection.
        let used = self.wire.take().filter(|_| !std::mem::replace(&mut self.open, false));
        self.failed = false;
        if let Some(mut wire) = used {
            // Nothing depends on a connection between transactions, so one that died meanwhile is replaced.
            match wire.begin().await {
                Ok(()) => {
                    self.wire = Some(wire);
                    self.open = true;
                    return Ok(());
                }
                Err(error) if is_lost(&error) => {}
                Err(error) => return Err(into_system(ATTEMPTED, error)),
            }
        }
        let mut wire = Wire::open(&self.shared.options, &self.shared.settings).await?;
        if self.schema.is_none() {
            self.schema = Some(self.shared.schema(&mut wire).await?);
        }
        wire.begin().await.map_err(|error| into_system(ATTEMPTED, error))?;
        self.wire = Some(wire);
        self.open = true;
        Ok(())
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Error> {
        inbox::claim(self, claims).await
    }

    async fn record(&mut self, states: &[(DedupKey, State)]) -> Result<(), Error> {
        inbox::record(self, states).await
    }

    async fn apply(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        if plan.groups.is_empty() {
            return Ok(());
        }
        let schema = self.schema("write effects")?;
        for group in &plan.groups {
            if !group.rows.is_empty() {
                self.group(&schema, group).await?;
            }
        }
        self.check_deferred(&schema, &plan.groups).await
    }

    async fn emit(&mut self, rows: &[outbox::NewRow]) -> Result<(), Error> {
        super::outbox::emit(self, rows).await
    }

    async fn park(&mut self, rows: &[parked::NewRow]) -> Result<(), Error> {
        super::parked::park(self, rows).await
    }

    async fn unpark(&mut self, keys: &[DedupKey]) -> Result<(), Error> {
        super::parked::unpark(self, keys).await
    }

    async fn get(
        &mut self,
        table: TableId,
        key: &Cells,
        columns: &[ColumnId],
        lock: bool,
    ) -> Result<Option<Vec<Value>>, ReadError> {
        let schema = self.schema("read a row")?;
        let shape = schema.shape(table);
        let attempted = format!("read a row of {}", schema.catalog.table(table).name);
        let column = |id: &ColumnId| &shape.columns[usize::from(*id)];
        let select: Vec<_> = columns.iter().map(|c| column(c).select()).collect();
        let select = if select.is_empty() { "true".to_owned() } else { select.join(", ") };
        let wanted: Vec<_> = key.iter().enumerate().map(|(i, (c, _))| column(c).equals(i + 1)).collect();
        let sql = format!(
            "SELECT {select} FROM {} AS t WHERE {}{}",
            shape.table,
            wanted.join(" AND "),
            if lock { " FOR UPDATE OF t" } else { "" }
        );
        let mut params = Vec::with_capacity(key.len());
        for (id, value) in key {
            params.push(Param::value(column(id).native, value).map_err(ReadError::Invalid)?);
        }
        let rows = self.rows(&attempted, &sql, params).await.map_err(read_error)?;
        match rows.as_slice() {
            [] => Ok(None),
            [row] => {
                let values = columns.iter().enumerate().map(|(i, c)| decode(row, i, Some(column(c).native)));
                values.collect::<Result<_, _>>().map(Some)
            }
            _ => Err(ReadError::Invalid(format!("the key names {} rows", rows.len()))),
        }
    }

    async fn query(&mut self, statement: &Statement, parameters: &[Value], most: usize) -> Result<Rows, ReadError> {
        const ATTEMPTED: &str = "run a plugin's query";
        let (params, columns) = match self.encode(statement, parameters).await {
            Ok(encoded) => encoded,
            Err(Encode::Invalid(why)) => return Err(ReadError::Invalid(why)),
            Err(Encode::Fault(fault)) => return Err(read_error(fault)),
        };
        let mut wire = self.take(ATTEMPTED)?;
        let result = wire.some_rows(&statement.sql, params, most).await;
        self.keep(wire, &result);
        let found = result.map_err(|error| read_error(classify(ATTEMPTED, error)))?;
        if found.len() > most {
            return Err(ReadError::Invalid(format!("the query found more than {most} rows; add a LIMIT")));
        }
        let rows = found
            .iter()
            .map(|row| (0..row.len()).map(|at| decode(row, at, None)).collect())
            .collect::<Result<_, _>>()?;
        Ok(Rows { columns, rows })
    }

    async fn execute(&mut self, statement: &Statement, parameters: &[Value]) -> Result<u64, ApplyError> {
        const ATTEMPTED: &str = "run a plugin's statement";
        let (params, _) = match self.encode(statement, parameters).await {
            Ok(encoded) => encoded,
            Err(Encode::Invalid(reason)) => {
                return Err(ApplyError::Refused(store::Refusal {
                    code: "data:value".into(),
                    reason,
                    retry: false,
                    guard: None,
                    suspects: Vec::new(),
                }));
            }
            Err(Encode::Fault(Fault::System(error))) => return Err(error.into()),
            Err(Encode::Fault(Fault::Refused(error))) => return Err(refusal::refused(ATTEMPTED, *error, None)),
        };
        let mut wire = self.take(ATTEMPTED)?;
        let result = wire.affected(&statement.sql, params).await;
        self.keep(wire, &result);
        let affected = match result.map_err(|error| classify(ATTEMPTED, error)) {
            Ok(affected) => affected,
            Err(Fault::System(error)) => return Err(error.into()),
            Err(Fault::Refused(error)) => return Err(refusal::refused(ATTEMPTED, *error, None)),
        };
        let schema = self.schema(ATTEMPTED)?;
        self.check_deferred(&schema, &[]).await?;
        Ok(affected)
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        own(self.simple("set a savepoint", "SAVEPOINT ackwright").await, "set a savepoint")
    }

    async fn rollback_to(&mut self) -> Result<(), Error> {
        const ATTEMPTED: &str = "roll back to a savepoint";
        self.failed = false;
        own(self.simple(ATTEMPTED, "ROLLBACK TO SAVEPOINT ackwright; RELEASE SAVEPOINT ackwright").await, ATTEMPTED)
    }

    async fn release(&mut self) -> Result<(), Error> {
        own(self.simple("release a savepoint", "RELEASE SAVEPOINT ackwright").await, "release a savepoint")
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        const ATTEMPTED: &str = "commit";
        let mut wire = match self.take(ATTEMPTED) {
            Ok(wire) => wire,
            Err(error) => {
                self.rollback().await;
                return Err(CommitError::RolledBack(error));
            }
        };
        self.open = false;
        // COMMIT alone succeeds outside of a transaction, and answers ROLLBACK in a failed one; SAVEPOINT fails in
        // both, and then the server skips the COMMIT behind it.
        let result = wire.simple("SAVEPOINT ackwright_end; COMMIT").await;
        match result {
            Ok(()) => {
                self.wire = Some(wire);
                Ok(())
            }
            Err(error) if is_lost(&error) => Err(CommitError::InDoubt(into_system(ATTEMPTED, error))),
            Err(error) => {
                if wire.simple("ROLLBACK").await.is_ok() {
                    self.wire = Some(wire);
                }
                // A deferred constraint: the effects are to blame, and the same transaction would fail again.
                match classify(ATTEMPTED.to_owned(), error) {
                    Fault::Refused(error) => match refusal::refused(ATTEMPTED, *error, None) {
                        ApplyError::Refused(refusal) => Err(CommitError::Refused(refusal)),
                        ApplyError::System(error) => Err(CommitError::RolledBack(error)),
                    },
                    Fault::System(error) => Err(CommitError::RolledBack(error)),
                }
            }
        }
    }

    async fn rollback(&mut self) {
        self.failed = false;
        let Some(mut wire) = self.wire.take() else {
            self.open = false;
            return;
        };
        if std::mem::replace(&mut self.open, false) && wire.simple("ROLLBACK").await.is_err() {
            return;
        }
        self.wire = Some(wire);
    }
}

/// Savepoints are the host's, so a refusal of one is not about data.
fn own(result: Result<(), Fault>, attempted: &str) -> Result<(), Error> {
    match result {
        Ok(()) => Ok(()),
        Err(Fault::System(error)) => Err(error),
        Err(Fault::Refused(error)) => Err(fault::system(attempted, *error)),
    }
}
