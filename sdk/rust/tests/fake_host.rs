//! The fake host keeps the rules of the real one.

use ackwright_sdk::fake::{Host, Outcome, Table, Type};
use ackwright_sdk::log::Level;
use ackwright_sdk::prelude::*;
use ackwright_sdk::store::otherwise;

/// Makes a handler of a block, identified by the message's body.
macro_rules! handler {
    ($name:ident, |$message:ident| $body:block) => {
        struct $name;

        impl Handler for $name {
            fn identify(message: &Message) -> Result<Identity, Rejection> {
                Ok(Identity::new("test").key(message.text()?))
            }

            #[allow(unused_variables)]
            fn handle($message: &Message) -> Result<(), Failure> {
                $body
                Ok(())
            }
        }
    };
}

fn host() -> Host {
    Host::new()
        .table(
            Table::new("accounts")
                .column("id", Type::Text)
                .column("balance", Type::Decimal)
                .nullable("note", Type::Text)
                .defaulted("active", Type::Boolean, true)
                .key(&["id"])
                .key(&["note"]),
        )
        .table(Table::new("secrets").column("id", Type::Integer).key(&["id"]).read_only())
        .seed("accounts", row! { "id": "a", "balance": 10, "note": "first" })
        .allow_emit("events:a.*.c")
}

fn message(body: &str) -> Message {
    Message::new("q").with_body(body)
}

fn rejected(outcome: Outcome) -> String {
    match outcome {
        Outcome::Rejected(rejection) => rejection.code,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn a_failed_guard_drops_all_effects_and_emits_of_the_message() {
    handler!(Spend, |message| {
        store::table("accounts").insert(row! { "id": message.text()?, "balance": 1 })?;
        outbox::to("events:a.b.c").emit("x")?;
        let amount = row! { "balance": "-10.01".parse::<Decimal>().unwrap() };
        store::table("accounts").add_above(0, ("id", "a"), amount, otherwise("no-funds", "too little"))?;
    });
    let mut host = host();
    assert_eq!(rejected(host.deliver::<Spend>(&message("b"))), "no-funds");
    assert_eq!(host.rows("accounts").len(), 1);
    assert_eq!(host.row("accounts", ("id", "a")).unwrap()["balance"], Value::Decimal("10".into()));
    assert!(host.emitted().is_empty());
}

#[test]
fn decimals_add_exactly_down_to_the_floor_and_defaults_fill_in() {
    handler!(Spend, |message| {
        let amount = ("balance", "-9.90".parse::<Decimal>().unwrap());
        let floor = "0.1".parse::<Decimal>().unwrap();
        store::table("accounts").add_above(floor, ("id", "a"), amount, otherwise("no-funds", ""))?;
        store::table("accounts").insert(row! { "id": "b", "balance": 0 })?;
    });
    let mut host = host();
    assert_eq!(host.deliver::<Spend>(&message("1")), Outcome::Done);
    assert_eq!(host.row("accounts", ("id", "a")).unwrap()["balance"], Value::Decimal("0.1".into()));
    assert_eq!(host.row("accounts", ("id", "b")).unwrap()["active"], Value::Boolean(true));
}

#[test]
fn constraints_reject_with_their_names() {
    handler!(SameKey, |message| {
        store::table("accounts").insert(row! { "id": "a", "balance": 1 })?;
    });
    handler!(SameNote, |message| {
        store::table("accounts").insert(row! { "id": "b", "balance": 1, "note": "first" })?;
    });
    handler!(NoBalance, |message| {
        store::table("accounts").insert(row! { "id": "b" })?;
    });
    assert_eq!(rejected(host().deliver::<SameKey>(&message("1"))), "accounts_pkey");
    assert_eq!(rejected(host().deliver::<SameNote>(&message("1"))), "accounts_note_key");
    assert_eq!(rejected(host().deliver::<NoBalance>(&message("1"))), "not-null:accounts.balance");
}

#[test]
fn a_missing_grant_dooms_the_message_even_when_the_handler_goes_on() {
    handler!(Writes, |message| {
        drop(store::table("secrets").insert(("id", 1)));
    });
    handler!(Emits, |message| {
        drop(outbox::to("events:a.b.d").emit("x"));
    });
    assert_eq!(host().deliver::<Writes>(&message("1")), Outcome::Denied("no grant to write secrets".into()));
    assert_eq!(host().deliver::<Emits>(&message("1")), Outcome::Denied("no grant to emit events:a.b.d".into()));
}

#[test]
fn mistakes_name_table_and_column() {
    handler!(NoKey, |message| {
        store::table("accounts").delete(("balance", 1))?;
    });
    handler!(WrongType, |message| {
        store::table("accounts").insert(row! { "id": 7, "balance": 1 })?;
    });
    handler!(NoColumn, |message| {
        store::table("accounts").insert(row! { "id": "b", "balanse": 1 })?;
    });
    let why = |outcome| match outcome {
        Outcome::Invalid(why) => why,
        other => panic!("not invalid: {other:?}"),
    };
    assert_eq!(why(host().deliver::<NoKey>(&message("1"))), "table accounts: (balance) is no unique key");
    let wrong = "table accounts: column id is Text: it cannot hold this integer value";
    assert_eq!(why(host().deliver::<WrongType>(&message("1"))), wrong);
    assert_eq!(why(host().deliver::<NoColumn>(&message("1"))), "table accounts: no such column balanse");
}

#[test]
fn a_retry_leaves_no_trace_and_the_message_can_run_again() {
    handler!(Waits, |message| {
        store::table("accounts").insert(row! { "id": "b", "balance": 1 })?;
        if settings::get("ready").as_deref() != Some("true") {
            return Err(retry("not-ready", "wait").into());
        }
    });
    let mut host = host().settings(serde_json::json!({"ready": false}));
    assert!(matches!(host.deliver::<Waits>(&message("1")), Outcome::Retry(delay) if delay.code == "not-ready"));
    assert!(host.row("accounts", ("id", "b")).is_none());
    let mut host = host.settings(serde_json::json!({"ready": true}));
    assert_eq!(host.deliver::<Waits>(&message("1")), Outcome::Done);
}

#[test]
fn emit_ids_follow_from_identity_and_ordinal() {
    handler!(Emits, |message| {
        outbox::to("events:a.b.c").emit("x")?;
        outbox::to("events:a.b.c").emit("x")?;
    });
    let ids = |body: &str| {
        let mut host = host();
        assert_eq!(host.deliver::<Emits>(&message(body)), Outcome::Done);
        host.emitted().iter().map(|emitted| emitted.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("1"), ids("1"));
    assert_ne!(ids("1")[0], ids("1")[1]);
    assert_ne!(ids("1")[0], ids("2")[0]);
}

#[test]
fn rows_read_back_as_structs_and_reads_see_own_effects() {
    #[derive(FromRow, Debug, PartialEq)]
    struct Account {
        id: String,
        balance: Decimal,
        note: Option<String>,
        active: bool,
    }
    handler!(Reads, |message| {
        store::table("accounts").update(("id", "a"), ("note", None::<String>), otherwise("gone", ""))?;
        let account: Account = store::table("accounts").get_for_update(("id", "a"))?.expect("the account");
        let balance = "10".parse().unwrap();
        assert_eq!(account, Account { id: "a".into(), balance, note: None, active: true });
        assert_eq!(store::query::<Account>("SELECT 1", &ackwright_sdk::params![2])?.len(), 0);
        ackwright_sdk::info!("read", id = account.id, at = context::now().micros());
    });
    let answer = |parameters: &[Value]| {
        assert_eq!(parameters, [Value::Integer(2)]);
        Vec::new()
    };
    let mut host = host().answer_query("SELECT 1", answer).at(Timestamp::from_millis(5));
    assert_eq!(host.deliver::<Reads>(&message("1")), Outcome::Done);
    assert_eq!(host.lines()[0].level, Level::Info);
    assert_eq!(host.lines()[0].fields, [("id".into(), "a".into()), ("at".into(), "5000".into())]);
}

#[test]
fn panics_and_transactional_calls_from_identify_are_outcomes() {
    handler!(Panics, |message| {
        assert!(message.body.is_none(), "because {}", message.text()?);
    });
    struct Peeks;
    impl Handler for Peeks {
        fn identify(_: &Message) -> Result<Identity, Rejection> {
            Ok(Identity::new("now").key(context::now().micros()))
        }
        fn handle(_: &Message) -> Result<(), Failure> {
            Ok(())
        }
    }
    let mut host = host();
    assert_eq!(host.deliver::<Panics>(&message("x")), Outcome::Panicked("because x".into()));
    let outcome = host.deliver::<Peeks>(&message("x"));
    assert!(matches!(&outcome, Outcome::Invalid(why) if why.starts_with("context.current")), "{outcome:?}");
}

#[test]
fn every_column_type_survives_the_round_trip_or_says_why_not() {
    use ackwright_sdk::column::{FromValue, ToValue};
    fn same<T: ToValue + FromValue + PartialEq + std::fmt::Debug>(value: T) {
        assert_eq!(T::from_value(value.to_value()), Ok(value));
    }
    same(i64::MIN);
    same(u64::MAX);
    same(i128::MIN);
    same(u8::MAX);
    same(true);
    same(0.1_f64);
    same(f32::MAX);
    same(String::from("ä\0"));
    same(Bytes(vec![0, 255]));
    same(Timestamp::from_micros(-1));
    same(Uuid::from_u128(7));
    same("-0.50".parse::<Decimal>().unwrap());
    same(serde_json::json!({"a": [1, null]}));
    same(Some(1_i32));
    same(None::<i32>);
    assert_eq!(u64::MAX.to_value(), Value::Decimal("18446744073709551615".into()));
    assert_eq!(i8::from_value(Value::Integer(200)), Err("200 does not fit into i8".into()));
    assert_eq!(f32::from_value(Value::Float(0.1)), Err("0.1 does not fit into f32".into()));
    assert_eq!(i64::from_value(Value::Null), Err("expected integer, found null".into()));
}
