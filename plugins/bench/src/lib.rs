//! The benchmark's job: one upsert, one `add`, one emit, with as little work of its own as possible.

use std::borrow::Cow;

use ackwright_sdk::{prelude::*, store::otherwise};
use serde::Deserialize;

/// Borrows from the body; fields that the job does not need are skipped, not built.
#[derive(Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    account: Cow<'a, str>,
    amount: i64,
}

#[derive(Row)]
#[row(table = "orders", key("id"))]
struct OrderRow<'a> {
    id: &'a str,
    account: &'a str,
    amount: i64,
}

fn read(message: &Message) -> Result<Order<'_>, Rejection> {
    serde_json::from_slice(message.bytes()?).map_err(|e| reject("bad-json", format!("read the order: {e}")))
}

struct Bench;

impl Handler for Bench {
    fn identify(message: &Message) -> Result<Identity, Rejection> {
        Ok(Identity::new("order").key(read(message)?.id))
    }

    fn handle(message: &Message) -> Result<(), Failure> {
        let Order { id, account, amount } = read(message)?;
        store::upsert(&OrderRow { id: &id, account: &account, amount })?;
        store::table("accounts").add(
            ("id", &*account),
            ("balance", amount),
            otherwise("no-such-account", "the account of the order is not there"),
        )?;
        // The body goes out as it came in: writing JSON would measure serde, not the host.
        outbox::to("events:bench.done").key(account).emit(message.bytes()?)?;
        Ok(())
    }
}

ackwright_sdk::export!(Bench);

#[cfg(test)]
mod tests {
    use super::*;
    use ackwright_sdk::fake::{Host, Outcome, Table, Type};

    #[test]
    fn an_order_is_one_upsert_one_add_and_one_emit() {
        let mut host = Host::new()
            .table(
                Table::new("orders")
                    .column("id", Type::Text)
                    .column("account", Type::Text)
                    .column("amount", Type::Integer)
                    .key(&["id"]),
            )
            .table(Table::new("accounts").column("id", Type::Text).column("balance", Type::Integer).key(&["id"]))
            .seed("accounts", ackwright_sdk::row! { "id": "acc-1", "balance": 0 })
            .allow_emit("events:bench.*");
        let body = r#"{"id":"o-1","account":"acc-1","amount":7,"padding":"xxxx"}"#;
        let message = Message::new("queue.bench").with_body(body);
        assert_eq!(host.deliver::<Bench>(&message), Outcome::Done);
        assert_eq!(host.row("orders", ("id", "o-1")).expect("the order")["amount"], Value::Integer(7));
        assert_eq!(host.row("accounts", ("id", "acc-1")).expect("the account")["balance"], Value::Integer(7));
        assert_eq!(host.emitted()[0].message.body, body.as_bytes());
    }
}
