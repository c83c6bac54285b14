//! `ackwright inbox show`.

use serde::Serialize;

use super::{Outcome, stores, unmigrated};
use crate::args::Inbox;
use crate::config::Loaded;
use crate::output::{print, print_json, short, table, time};

#[derive(Serialize)]
struct Found {
    database: String,
    #[serde(flatten)]
    row: ackwright_core::parked::InboxRow,
    created: String,
}

pub async fn inbox(loaded: &Loaded, command: Inbox, json: bool) -> anyhow::Result<Outcome> {
    let Inbox::Show { text, scope } = command;
    let mut found = Vec::new();
    for (database, store) in stores(loaded, scope.database.as_deref())? {
        let inbox = store.parked();
        let mut rows = inbox.inbox(&text, scope.limit).await;
        if rows.as_ref().is_ok_and(Vec::is_empty) {
            rows = inbox.inbox(&quoted(&text), scope.limit).await;
        }
        let rows = unmigrated(rows, loaded, &database, "inbox").await?;
        found.extend(rows.into_iter().map(|row| Found {
            database: database.clone(),
            created: time(row.created_at),
            row,
        }));
    }
    if json {
        print_json(&found)?;
    } else if found.is_empty() {
        print("no message with this key is recorded")?;
    } else {
        let headings = ["created", "state", "group", "plugin", "digest", "message", "key"];
        let rows = found.iter().map(|f| {
            let row = &f.row;
            [
                f.created.clone(),
                row.state.clone(),
                row.group.clone(),
                row.plugin.clone(),
                short(&row.digest, 12),
                short(&row.label, 60),
                row.key.to_string(),
            ]
        });
        print(&table(headings, rows))?;
    }
    Ok(if found.is_empty() { Outcome::Unmet } else { Outcome::Done })
}

/// The start of a readable form whose quotes were left out: `ORDER_PAID o-1` for `"ORDER_PAID" "o-1`.
fn quoted(text: &str) -> String {
    format!("\"{}", text.split_whitespace().collect::<Vec<_>>().join("\" \""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_may_be_left_out() {
        assert_eq!(quoted("ORDER_PAID o-1"), r#""ORDER_PAID" "o-1"#);
        assert_eq!(quoted("ORDER"), r#""ORDER"#);
    }
}
