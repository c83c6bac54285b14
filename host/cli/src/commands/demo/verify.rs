//! What must hold in the end, checked against the database and the published output, with arithmetic of its own.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde::Serialize;
use sqlx::sqlite::SqliteConnection;

use super::host::Host;
use super::stream::Expected;

#[derive(Debug, Serialize)]
pub struct Check {
    pub what: &'static str,
    pub holds: bool,
    pub detail: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Handed to the host, repeats after the crash included.
    pub deliveries: usize,
    pub distinct: usize,
    pub duplicates: usize,
    pub effects: usize,
    pub parked: usize,
    pub published: usize,
    /// Lines published more than once, with the same id, headers and body.
    pub republished: usize,
}

pub async fn count(database: &mut SqliteConnection, sql: &'static str) -> anyhow::Result<usize> {
    let found: i64 = sqlx::query_scalar(sql).fetch_one(database).await.with_context(|| format!("asking: {sql}"))?;
    Ok(usize::try_from(found)?)
}

/// Everything was handled and published, as far as counting can tell.
pub async fn settled(database: &mut SqliteConnection, expected: &Expected) -> anyhow::Result<bool> {
    let handled = count(database, "SELECT count(*) FROM ackwright_inbox").await?;
    let pending = count(database, "SELECT count(*) FROM ackwright_outbox WHERE state <> 3").await?;
    Ok(handled >= expected.distinct && pending == 0)
}

pub async fn verify(
    host: &Host,
    expected: &Expected,
    sent: usize,
    drained: bool,
) -> anyhow::Result<(Counts, Vec<Check>)> {
    let mut database = host.database().await?;
    let mut checks = Vec::new();
    let mut check = |what, holds, detail: String| checks.push(Check { what, holds, detail });

    let recorded = count(&mut database, "SELECT count(*) FROM ackwright_inbox").await?;
    check(
        "each distinct message is recorded once",
        recorded == expected.distinct,
        format!("{recorded} of {}", expected.distinct),
    );

    let coupons: Vec<String> =
        sqlx::query_scalar("SELECT order_id FROM coupons ORDER BY order_id").fetch_all(&mut database).await?;
    check(
        "each paid order has one coupon",
        coupons == expected.orders,
        format!("{} of {}", coupons.len(), expected.orders.len()),
    );

    let transfers = count(&mut database, "SELECT count(*) FROM transfers").await?;
    check(
        "each good transfer is booked once",
        transfers == expected.transfers,
        format!("{transfers} of {}", expected.transfers),
    );

    let balances: Vec<(String, i64)> =
        sqlx::query_as("SELECT id, balance FROM accounts ORDER BY id").fetch_all(&mut database).await?;
    let balances: BTreeMap<String, i64> = balances.into_iter().collect();
    let wrong = expected.balances.iter().filter(|(id, balance)| balances.get(*id) != Some(balance)).count();
    check(
        "every balance is what adding up the messages gives",
        wrong == 0 && balances.len() == expected.balances.len(),
        format!("{} accounts, {wrong} wrong", balances.len()),
    );
    let (held, due) = (balances.values().sum::<i64>(), expected.balances.values().sum::<i64>());
    check("no money came or went", held == due, format!("{held} cents"));

    let parked = count(&mut database, "SELECT count(*) FROM ackwright_parked WHERE state = 1").await?;
    let rejected = "SELECT count(*) FROM ackwright_parked WHERE code LIKE '%insufficient-funds'";
    let rejected = count(&mut database, rejected).await?;
    check(
        "what cannot be applied is parked with its reason",
        parked == expected.parked && rejected == expected.rejected,
        format!("{parked} of {}, {rejected} for lack of funds", expected.parked),
    );

    let out = published(host)?;
    let orders: BTreeSet<&String> = expected.orders.iter().collect();
    check(
        "each coupon is published, and nothing else",
        out.orders.values().collect::<BTreeSet<_>>() == orders && out.orders.len() == orders.len(),
        format!("{} of {}", out.orders.len(), orders.len()),
    );
    check("a repeat carries the same id, headers and body", out.same, format!("{} repeats", out.repeats));
    check("one kill tears at most one line", out.torn <= 1, format!("{} torn", out.torn));
    let left = count(&mut database, "SELECT count(*) FROM ackwright_outbox WHERE state <> 3").await?;
    check("the outbox is empty", left == 0, format!("{left} left"));
    check("SIGTERM drained the host, exit code 0", drained, String::new());

    let counts = Counts {
        deliveries: sent,
        distinct: expected.distinct,
        duplicates: sent - expected.distinct,
        effects: coupons.len() + transfers,
        parked,
        published: out.orders.len(),
        republished: out.repeats,
    };
    Ok((counts, checks))
}

/// What the published file holds.
#[derive(Default)]
struct Published {
    /// Order ids by message id.
    orders: BTreeMap<String, String>,
    repeats: usize,
    /// Repeats equal the first line with their id, in every byte.
    same: bool,
    /// Lines that the kill cut off; what they held comes again.
    torn: usize,
}

fn published(host: &Host) -> anyhow::Result<Published> {
    let path = host.published();
    let text = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let mut found = Published { same: true, ..Published::default() };
    let mut lines = BTreeMap::new();
    for line in text.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            found.torn += 1;
            continue;
        };
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let id = text(&message["id"]);
        found.orders.insert(id.clone(), text(&message["body"]["order_id"]));
        if let Some(first) = lines.insert(id, line) {
            found.repeats += 1;
            found.same &= first == line;
        }
    }
    Ok(found)
}
