//! The embedded default: SQLite, a webhook and files, no server beside the host.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use ackwright_testkit::{Host, free_port, http, until};

use crate::database::{Database, Kind};
use crate::load::{Letter, Load, Size};
use crate::oracle::{conserved, published};
use crate::stage::{Announced, START, plugins};

const DEADLINE: Duration = Duration::from_secs(60);

struct Local {
    database: Database,
    webhook: SocketAddr,
    host: Host,
}

impl Local {
    async fn new() -> Self {
        let database = Database::new(Kind::Sqlite).await;
        for statement in Load::accounts() {
            database.execute(&statement).await;
        }
        let webhook = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let local = Local { database, webhook, host: Host::new().expect("a host") };
        // A host is not ready before its file is there.
        local.append(&[]);
        local
    }

    async fn start(&mut self, environment: &[(&str, &str)]) {
        self.host.start(&self.toml(), environment).expect("it starts");
        self.host.ready(START).await.expect("it is ready");
    }

    fn toml(&self) -> String {
        let (admin, webhook, database) = (self.host.admin(), self.webhook, self.database.url());
        let plugins = plugins().display().to_string();
        format!(
            r#"
[host]
admin = "{admin}"
drain_timeout = "10s"

[database.main]
url = "{database}"
migrate = true

[broker.orders]
kind = "webhook"
listen = "{webhook}"

[broker.lines]
kind = "file"
format = "body"

[broker.events]
kind = "file"
format = "envelope"
path = "{{destination}}.ndjson"

[plugin.coupon]
path = "{plugins}/coupon.wasm"
grants.write = ["coupons"]
grants.emit = ["events:coupon.*"]
limits = {{ time = "5s" }}
settings = {{ campaign = "winter" }}

[plugin.ledger]
path = "{plugins}/ledger.wasm"
grants.write = ["accounts", "transfers"]
limits = {{ time = "5s" }}

[route.orders]
broker = "orders"
path = "/orders"
database = "main"
batch = 8
plugins = [{{ use = "coupon" }}]

[route.transfers]
broker = "lines"
file = "transfers.ndjson"
database = "main"
batch = 8
plugins = [{{ use = "ledger" }}]
"#
        )
    }

    /// The status of the answer; an error where there was none.
    async fn post(&self, body: &[u8]) -> Option<u16> {
        http(self.webhook, "POST", "/orders", &[], body).await.ok().map(|answer| answer.status)
    }

    /// Appends lines to the file that the host follows.
    fn append(&self, letters: &[&Letter]) {
        let path = self.host.folder().join("transfers.ndjson");
        let mut file = std::fs::File::options().create(true).append(true).open(path).expect("it opens");
        for letter in letters {
            file.write_all(&letter.body).and_then(|()| file.write_all(b"\n")).expect("it is written");
        }
    }

    /// Waits until everything is finished, and holds what is there against what must be there.
    async fn check(&self, load: &Load) {
        let messages = (load.orders.len() + load.transfers.len() + load.parked.len()) as i64;
        until("every message has its record", DEADLINE, async || {
            (self.database.number("SELECT count(*) FROM ackwright_inbox").await >= messages).then_some(())
        })
        .await;
        published(&self.database, DEADLINE).await;
        conserved(&self.database, load, &self.announced()).await;
    }

    fn announced(&self) -> Vec<Announced> {
        let path = self.host.folder().join("coupon.issued.ndjson");
        let text = std::fs::read_to_string(path).expect("something was published");
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            let id = line["id"].as_str().expect("an id").to_owned();
            Announced { id, headers: Default::default(), body: line["body"].to_string().into_bytes() }
        };
        text.lines().map(line).collect()
    }
}

fn split(load: &Load) -> (Vec<&Letter>, Vec<&Letter>) {
    load.letters.iter().partition(|letter| letter.queue == "orders")
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_and_lines_have_their_effects_once_and_answers_say_what_became_of_them() {
    let mut local = Local::new().await;
    local.start(&[]).await;
    let mut load = Load::generate(51, Size { orders: 60, transfers: 60, poison: 0, readers: 0, repeats: 30 });
    let poison = load.unreadable(b"{\"broken\"".to_vec());
    let (posts, lines) = split(&load);
    local.append(&lines);
    for letter in posts {
        assert_eq!(local.post(&letter.body).await, Some(200));
    }
    assert_eq!(local.post(&poison.body).await, Some(422));
    assert_eq!(local.post(&poison.body).await, Some(200), "a repeat is a duplicate, whatever became of the first");
    local.check(&load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_loses_neither_posts_nor_lines() {
    for point in ["commit:before#5", "commit:after#9", "settle:after#7", "relay:after#2"] {
        let mut local = Local::new().await;
        local.start(&[("ACKWRIGHT_CRASH", point)]).await;
        let load = Load::generate(52, Size { orders: 40, transfers: 40, poison: 3, readers: 0, repeats: 30 });
        let (posts, lines) = split(&load);
        let (early, late) = lines.split_at(lines.len() / 2);
        local.append(early);
        let mut died = false;
        for letter in posts {
            // Who has no answer sends again, as webhooks do.
            while !matches!(local.post(&letter.body).await, Some(200 | 422)) {
                local.host.died(DEADLINE).await.expect("it ends at the point");
                assert!(!died, "{point}: it ended twice");
                died = true;
                local.append(late);
                local.start(&[]).await;
            }
        }
        assert!(died, "{point} was never passed while posts came");
        local.check(&load).await;
    }
}
