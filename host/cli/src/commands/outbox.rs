//! `ackwright outbox list`.

use serde::Serialize;

use super::{Outcome, stores, unmigrated};
use crate::args::Outbox;
use crate::config::Loaded;
use crate::output::{optional_time, print, print_json, short, table, time};

#[derive(Serialize)]
struct Row {
    database: String,
    #[serde(flatten)]
    row: ackwright_core::outbox::Listed,
    created: String,
}

pub async fn outbox(loaded: &Loaded, command: Outbox, json: bool) -> anyhow::Result<Outcome> {
    let Outbox::List { state, scope } = command;
    let mut all = Vec::new();
    for (database, store) in stores(loaded, scope.database.as_deref())? {
        let rows = store.outbox().list(state.map(|s| s.text()), scope.limit).await;
        let rows = unmigrated(rows, loaded, &database, "outbox").await?;
        all.extend(rows.into_iter().map(|row| Row { database: database.clone(), created: time(row.created_at), row }));
    }
    if json {
        print_json(&all)?;
    } else if all.is_empty() {
        print("the outbox has no such rows; sent ones are removed after database.*.keep_sent")?;
    } else {
        let headings = ["created", "state", "destination", "order key", "tries", "next", "bytes", "reason", "id"];
        let rows = all.iter().map(|r| {
            let row = &r.row;
            [
                r.created.clone(),
                row.state.clone(),
                short(&format!("{}:{}", row.broker, row.destination), 40),
                short(&row.order_key, 24),
                row.attempts.to_string(),
                optional_time(row.next_attempt_at),
                row.bytes.to_string(),
                short(row.reason.as_deref().unwrap_or("-"), 60),
                row.id.to_string(),
            ]
        });
        print(&table(headings, rows))?;
    }
    Ok(Outcome::Done)
}
