//! Letters for the probe guest, which does what a message tells it.

use std::time::Duration;

use ackwright_testkit::until;
use serde_json::{Value, json};

use crate::load::Letter;
use crate::stage::Stage;

pub fn script(key: &str, steps: Value) -> Letter {
    let body = json!({ "key": key, "do": steps });
    Letter { queue: "probe", body: body.to_string().into_bytes() }
}

/// A good neighbour: it leaves one row.
pub fn good(key: &str) -> Letter {
    script(key, json!([{ "insert": { "table": "probe_rows", "row": { "id": key, "n": 1 } } }]))
}

/// What became of a script that is parked.
#[derive(Debug, PartialEq)]
pub struct Parked {
    pub code: String,
    pub reason: String,
    pub detail: String,
    pub attempts: i64,
}

impl Stage {
    pub async fn until_row(&self, id: &str, deadline: Duration) {
        let select = format!("SELECT count(*) FROM probe_rows WHERE id = '{id}'");
        until(&format!("row {id} is there"), deadline, async || {
            (self.database.number(&select).await == 1).then_some(())
        })
        .await;
    }

    /// Waits until the script with this key is parked for good.
    pub async fn until_parked(&self, key: &str, deadline: Duration) -> Parked {
        let from = format!("FROM ackwright_parked WHERE state = 1 AND label LIKE '%{key}%'");
        let column = async |column: &str| self.database.texts(&format!("SELECT {column} {from}")).await.pop();
        until(&format!("{key} is parked"), deadline, async || {
            Some(Parked {
                code: column("code").await?,
                reason: column("reason").await?,
                detail: column("coalesce(detail, '')").await?,
                attempts: column("CAST(attempts AS TEXT)").await?.parse().ok()?,
            })
        })
        .await
    }
}
