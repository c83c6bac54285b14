//! Odd messages among good ones.

use std::time::Duration;

use lapin::types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable};

use crate::database::Kind;
use crate::load::{Letter, Load, Size};
use crate::oracle::check;
use crate::stage::Stage;

const DEADLINE: Duration = Duration::from_secs(60);

/// Keys that a collation, a delimiter, a normal form or a width would take for one another.
const KEYS: [&str; 14] = [
    "o-1",
    "O-1",
    "o-1 ",
    " o-1",
    "o-1\t",
    "a\",\"b",
    "a,b",
    "a\u{1f}b",
    "caf\u{e9}",
    "cafe\u{301}",
    "NULL",
    "null",
    "0",
    "-0",
];

#[tokio::test(flavor = "multi_thread")]
async fn d02_d03_keys_that_look_alike_are_different_messages_on_postgres() {
    keys_that_look_alike_are_different_messages(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d02_d03_keys_that_look_alike_are_different_messages_on_sqlite() {
    keys_that_look_alike_are_different_messages(Kind::Sqlite).await;
}

async fn keys_that_look_alike_are_different_messages(kind: Kind) {
    let stage = Stage::new(kind).await;
    let _host = stage.host().await;
    let mut load = Load::generate(1, Size { orders: 0, transfers: 0, poison: 0, readers: 0, repeats: 0 });
    let long = "k".repeat(3000);
    for key in KEYS.into_iter().chain([&long[..], &long[1..]]) {
        let letter = load.order(key, "c");
        load.letters.extend([letter.clone(), letter]);
    }
    stage.send(&load.letters).await;
    check(&stage, &load, DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r08_a_message_with_every_kind_of_header_flows_and_so_do_its_neighbours() {
    let stage = Stage::new(Kind::Postgres).await;
    let _host = stage.host().await;
    let balances = Load::generate(0, Size { orders: 0, transfers: 0, poison: 0, readers: 0, repeats: 0 }).balances;
    let mut load = Load { balances, ..Load::default() };
    let letters: Vec<Letter> = (0..6).map(|n| load.order(&format!("o-{n}"), "c")).collect();
    for (letter, headers) in letters.iter().zip([plain(), every_kind(), binary(), plain(), every_kind(), plain()]) {
        stage.send_with_headers(letter, headers).await;
    }
    check(&stage, &load, DEADLINE).await;
}

fn plain() -> FieldTable {
    FieldTable::default()
}

fn every_kind() -> FieldTable {
    let mut nested = FieldTable::default();
    nested.insert("inner".into(), AMQPValue::LongString("text".into()));
    let mut array = FieldArray::default();
    array.push(AMQPValue::ShortInt(-7));
    array.push(AMQPValue::FieldTable(nested.clone()));
    let mut headers = FieldTable::default();
    for (name, value) in [
        ("boolean", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-1)),
        ("u8", AMQPValue::ShortShortUInt(255)),
        ("i16", AMQPValue::ShortInt(-300)),
        ("u16", AMQPValue::ShortUInt(60_000)),
        ("i32", AMQPValue::LongInt(-70_000)),
        ("u32", AMQPValue::LongUInt(4_000_000_000)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("f32", AMQPValue::Float(1.5)),
        ("f64", AMQPValue::Double(0.1)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 12_345 })),
        ("text", AMQPValue::LongString("caf\u{e9}".into())),
        ("time", AMQPValue::Timestamp(1_700_000_000)),
        ("array", AMQPValue::FieldArray(array)),
        ("table", AMQPValue::FieldTable(nested)),
        ("nothing", AMQPValue::Void),
    ] {
        headers.insert(name.into(), value);
    }
    headers
}

fn binary() -> FieldTable {
    let mut headers = FieldTable::default();
    headers.insert("not-utf-8".into(), AMQPValue::LongString(vec![0xff, 0x00, 0xfe].into()));
    headers.insert("bytes".into(), AMQPValue::ByteArray(ByteArray::from(vec![0x80, 0x81])));
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_nobody_can_read_are_parked_byte_for_byte_and_huge_ones_are_not_special() {
    let stage = Stage::new(Kind::Postgres).await;
    let host = stage.host().await;
    let mut load = Load::generate(4, Size { orders: 20, transfers: 20, poison: 0, readers: 0, repeats: 10 });
    for body in [Vec::new(), vec![0], b"null".to_vec(), vec![0xff; 70_000], b"{\"order_id\": 7}".to_vec()] {
        let letter = load.unreadable(body);
        load.letters.push(letter);
    }
    let mut huge = load.order("huge", "c");
    let padding = format!(",\"padding\":\"{}\"}}", "x".repeat(3 << 20));
    huge.body.pop();
    huge.body.extend_from_slice(padding.as_bytes());
    load.letters.insert(5, huge);
    stage.send(&load.letters).await;
    check(&stage, &load, DEADLINE).await;

    let listed = host.command(&["parked", "list", "--json"]).await.expect("it runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8(listed.stdout).expect("it is JSON");
    assert!(text.contains("bad-json"), "the list says why: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_among_good_neighbours_costs_them_nothing() {
    let stage = Stage::new(Kind::Postgres).await;
    let host = stage.host().await;
    let load = Load::generate(5, Size { orders: 100, transfers: 100, poison: 100, readers: 0, repeats: 20 });
    stage.send(&load.letters).await;
    check(&stage, &load, DEADLINE).await;
    assert_eq!(host.metric("ackwright_system_faults_total", &[]).await.expect("an answer"), 0.0);
}
