//! The benchmark's job: one upsert, one `add`, one emit, with as little work of its own as possible.

use ackwright_sdk::{prelude::*, store::otherwise};
use serde::Deserialize;

/// Borrows from the body; fields that the job does not need are skipped, not built.
#[derive(Deserialize)]
struct Order<'a> {
    order: &'a str,
    account: i64,
    amount: i64,
    at: i64,
}

#[derive(Row)]
#[row(table = "orders", key("id"))]
struct OrderRow<'a> {
    id: &'a str,
    account: i64,
    amount: i64,
    at: i64,
}

fn read(message: &Message) -> Result<Order<'_>, Rejection> {
    serde_json::from_slice(message.bytes()?).map_err(|e| reject("bad-json", format!("read the order: {e}")))
}

struct Bench;

impl Handler for Bench {
    fn identify(message: &Message) -> Result<Identity, Rejection> {
        Ok(Identity::new("order").key(read(message)?.order))
    }

    fn handle(message: &Message) -> Result<(), Failure> {
        let Order { order, account, amount, at } = read(message)?;
        if amount < 0 {
            return Err(reject("negative", "an order has a positive amount").into());
        }
        store::upsert(&OrderRow { id: order, account, amount, at })?;
        store::table("accounts").add(
            ("id", account),
            ("balance", amount),
            otherwise("no-such-account", "the account of the order is not there"),
        )?;
        outbox::to("events:order.booked").emit(format!(r#"{{"order":"{order}","amount":{amount}}}"#))?;
        Ok(())
    }
}

ackwright_sdk::export!(Bench);

#[cfg(test)]
mod tests {
    use super::*;
    use ackwright_sdk::fake::{Host, Outcome, Table, Type};

    fn host() -> Host {
        let orders = Table::new("orders").column("id", Type::Text).column("account", Type::Integer);
        Host::new()
            .table(orders.column("amount", Type::Integer).column("at", Type::Integer).key(&["id"]))
            .table(Table::new("accounts").column("id", Type::Integer).column("balance", Type::Integer).key(&["id"]))
            .seed("accounts", ackwright_sdk::row! { "id": 1, "balance": 0 })
            .allow_emit("events:order.*")
    }

    #[test]
    fn an_order_is_one_upsert_one_add_and_one_emit() {
        let mut host = host();
        let body = r#"{"order":"o-1","account":1,"amount":7,"at":5,"note":"xxxx"}"#;
        assert_eq!(host.deliver::<Bench>(&Message::new("orders").with_body(body)), Outcome::Done);
        assert_eq!(host.row("orders", ("id", "o-1")).expect("the order")["amount"], Value::Integer(7));
        assert_eq!(host.row("accounts", ("id", 1)).expect("the account")["balance"], Value::Integer(7));
        assert_eq!(host.emitted()[0].message.body, br#"{"order":"o-1","amount":7}"#);
    }

    #[test]
    fn a_negative_amount_is_rejected_and_leaves_nothing() {
        let mut host = host();
        let body = r#"{"order":"o-1","account":1,"amount":-7,"at":5}"#;
        let Outcome::Rejected(rejection) = host.deliver::<Bench>(&Message::new("orders").with_body(body)) else {
            panic!("the order was not rejected");
        };
        assert_eq!(rejection.code, "negative");
        assert!(host.emitted().is_empty());
    }
}
