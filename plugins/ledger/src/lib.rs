//! Moves money between two accounts. Both `add`s are not idempotent: that they happen once is the host's work.

use ackwright_sdk::{prelude::*, store::otherwise};
use serde::Deserialize;

#[derive(Deserialize)]
struct Transfer {
    transfer_id: String,
    from: String,
    to: String,
    /// In cents.
    amount: i64,
}

impl Transfer {
    fn read(message: &Message) -> Result<Self, Rejection> {
        let transfer: Transfer = message.json()?;
        if transfer.amount <= 0 {
            return Err(reject("bad-amount", format!("amount {} is not above zero", transfer.amount)));
        }
        if transfer.from == transfer.to {
            return Err(reject("same-account", format!("from and to are both {:?}", transfer.from)));
        }
        Ok(transfer)
    }
}

#[derive(Row)]
#[row(table = "transfers")]
struct Entry<'a> {
    id: &'a str,
    from_account: &'a str,
    to_account: &'a str,
    amount: i64,
}

struct Ledger;

impl Handler for Ledger {
    fn identify(message: &Message) -> Result<Identity, Rejection> {
        let transfer: Transfer = message.json()?;
        Ok(Identity::new("transfer").key(transfer.transfer_id).ordered_by(transfer.from))
    }

    fn handle(message: &Message) -> Result<(), Failure> {
        let Transfer { transfer_id, from, to, amount } = Transfer::read(message)?;
        let accounts = store::table("accounts");
        accounts.add_above(
            0,
            ("id", &from),
            ("balance", -amount),
            otherwise("insufficient-funds", format!("account {from} cannot pay {amount}")),
        )?;
        accounts.add(
            ("id", &to),
            ("balance", amount),
            otherwise("no-such-account", format!("account {to} is not there to be paid")),
        )?;
        store::insert(&Entry { id: &transfer_id, from_account: &from, to_account: &to, amount })?;
        Ok(())
    }
}

ackwright_sdk::export!(Ledger);

#[cfg(test)]
mod tests {
    use super::*;
    use ackwright_sdk::fake::{Host, Outcome, Table, Type};

    fn host() -> Host {
        Host::new()
            .table(
                Table::new("accounts")
                    .column("id", Type::Text)
                    .column("balance", Type::Integer)
                    .key(&["id"])
                    .write_only(),
            )
            .table(
                Table::new("transfers")
                    .column("id", Type::Text)
                    .column("from_account", Type::Text)
                    .column("to_account", Type::Text)
                    .column("amount", Type::Integer)
                    .key(&["id"]),
            )
            .seed("accounts", ackwright_sdk::row! { "id": "a", "balance": 100 })
            .seed("accounts", ackwright_sdk::row! { "id": "b", "balance": 0 })
    }

    fn transfer(id: &str, from: &str, to: &str, amount: i64) -> Message {
        Message::new("queue.transfers")
            .with_body(format!(r#"{{"transfer_id":"{id}","from":"{from}","to":"{to}","amount":{amount}}}"#))
    }

    fn balance(host: &Host, id: &str) -> Value {
        host.row("accounts", ("id", id)).expect("the account")["balance"].clone()
    }

    fn code(outcome: Outcome) -> String {
        match outcome {
            Outcome::Rejected(rejection) => rejection.code,
            other => panic!("not rejected: {other:?}"),
        }
    }

    #[test]
    fn a_transfer_moves_money_once_however_often_it_comes() {
        let mut host = host();
        assert_eq!(host.deliver::<Ledger>(&transfer("t-1", "a", "b", 60)), Outcome::Done);
        assert_eq!(host.deliver::<Ledger>(&transfer("t-1", "a", "b", 60)), Outcome::Duplicate);
        assert_eq!(balance(&host, "a"), Value::Integer(40));
        assert_eq!(balance(&host, "b"), Value::Integer(60));
        assert_eq!(host.rows("transfers").len(), 1);
    }

    #[test]
    fn without_funds_nothing_moves() {
        let mut host = host();
        assert_eq!(code(host.deliver::<Ledger>(&transfer("t-1", "a", "b", 101))), "insufficient-funds");
        assert_eq!(balance(&host, "a"), Value::Integer(100));
        assert_eq!(balance(&host, "b"), Value::Integer(0));
        assert!(host.rows("transfers").is_empty());
    }

    #[test]
    fn the_whole_balance_can_go() {
        let mut host = host();
        assert_eq!(host.deliver::<Ledger>(&transfer("t-1", "a", "b", 100)), Outcome::Done);
        assert_eq!(balance(&host, "a"), Value::Integer(0));
    }

    #[test]
    fn an_account_that_is_not_there_takes_no_money() {
        let mut host = host();
        assert_eq!(code(host.deliver::<Ledger>(&transfer("t-1", "a", "nobody", 5))), "no-such-account");
        assert_eq!(balance(&host, "a"), Value::Integer(100));
    }

    #[test]
    fn amounts_and_accounts_are_checked() {
        let mut host = host();
        assert_eq!(code(host.deliver::<Ledger>(&transfer("t-1", "a", "b", -5))), "bad-amount");
        assert_eq!(code(host.deliver::<Ledger>(&transfer("t-2", "a", "a", 5))), "same-account");
    }
}
