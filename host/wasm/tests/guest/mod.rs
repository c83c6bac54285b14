//! Guests made by hand, and what it takes to run them.

#![allow(dead_code)]

use std::sync::Arc;

use ackwright_core::access::{Access, Grants};
use ackwright_core::catalog::{Catalog, Column, Kind, Table, UniqueKey};
use ackwright_core::effect::{self, Buffer, NamedRow};
use ackwright_core::handler::{Handler, Reads};
use ackwright_core::message::Message;
use ackwright_core::value::Value;
use ackwright_wasm::{Engine, Limits, Settings};
use async_trait::async_trait;
use wit_component::StringEncoding;
use wit_parser::Resolve;

const GUEST: &str = include_str!("guest.wat");

/// The guest as a core module with component metadata.
pub fn guest() -> Vec<u8> {
    module(GUEST, &[], "handler")
}

/// The same, with a number in its row that mixes random bits and the time of WASI.
pub fn wasi_guest() -> Vec<u8> {
    let text = GUEST
        .replace(
            ";;IMPORTS",
            r#"(import "wasi:random/random@0.2.0" "get-random-u64" (func $random (result i64)))
               (import "wasi:clocks/wall-clock@0.2.0" "now" (func $now (param i32)))"#,
        )
        .replace(
            "(;NUMBER;) (i64.const 7)",
            "(call $now (i32.const 800))
             (i64.add (i64.and (call $random) (i64.const 0xffffffff))
                      (i64.shl (i64.load (i32.const 800)) (i64.const 32)))",
        );
    let wasi = [
        "package wasi:random@0.2.0; interface random { get-random-u64: func() -> u64; }",
        "package wasi:clocks@0.2.0; interface wall-clock { record datetime { seconds: u64, nanoseconds: u32 } \
         now: func() -> datetime; }",
        "package test:guest; world guest { include ackwright:handler/handler@0.1.0; \
         import wasi:random/random@0.2.0; import wasi:clocks/wall-clock@0.2.0; }",
    ];
    module(&text, &wasi, "test:guest/guest")
}

/// A core module in text with the metadata of a world over the contract and further packages.
pub fn module(text: &str, packages: &[&str], world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let (mut package, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).expect("the contract");
    for (i, source) in packages.iter().enumerate() {
        package = resolve.push_str(format!("{i}.wit"), source).expect("a package of the test");
    }
    embed(text, &resolve, package, world)
}

/// The same over one package alone.
pub fn foreign(text: &str, package: &str, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("foreign.wit", package).expect("a package of the test");
    embed(text, &resolve, package, world)
}

fn embed(text: &str, resolve: &Resolve, package: wit_parser::PackageId, world: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).expect("the guest's text");
    let world = resolve.select_world(&[package], Some(world)).expect("the guest's world");
    wit_component::embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8, false)
        .expect("metadata");
    module
}

pub fn engine(guests: u32) -> Engine {
    Engine::new(Settings { guests, ..Settings::default() }).expect("an engine")
}

pub fn access() -> Access {
    let column = |name: &str, kind, native: &str| Column {
        name: name.into(),
        kind,
        native: native.into(),
        nullable: false,
        defaulted: false,
        generated: false,
        foldable: true,
    };
    let table = |name| {
        let columns = vec![
            column("id", Kind::Text { most: None }, "text"),
            column("n", Kind::Integer { min: i64::MIN, max: i64::MAX }, "bigint"),
        ];
        Table::new(name, columns, vec![UniqueKey { name: format!("{name}_pkey"), columns: vec![0] }])
    };
    let grants = Grants { read: vec!["items".into()], write: vec!["items".into()], emit: vec!["events:*".into()] };
    Access::resolve(&grants, Arc::new(Catalog::new(vec![table("items"), table("secrets")]))).expect("grants")
}

pub async fn handler(engine: &Engine, bytes: Vec<u8>, limits: Limits) -> Arc<dyn Handler> {
    let plugin = engine.load("probe", bytes).await.expect("a plugin");
    plugin.bind(access(), limits, serde_json::Value::Null, "tests").expect("a version")
}

/// A message for the guest: its id, and a body that says what to do.
pub fn message(id: &str, body: &str) -> Arc<Message> {
    Arc::new(Message {
        id: Some(id.into()),
        source: "queue".into(),
        published_at: Some(1_700_000_000_000_000),
        body: Some(body.to_owned().into()),
        ..Message::default()
    })
}

/// Reads that find nothing.
pub struct Nothing;
/// Reads that never return.
pub struct Stuck;
/// Reads of a database that is out of reach.
pub struct Away;

macro_rules! reads {
    ($name:ident, $get:expr) => {
        #[async_trait]
        impl Reads for $name {
            async fn get(
                &self,
                _: &mut Buffer,
                _: &Access,
                _: &str,
                _: NamedRow,
                _: bool,
            ) -> Result<Option<NamedRow>, effect::Error> {
                $get.await
            }

            async fn query(
                &self,
                _: &mut Buffer,
                _: &Access,
                _: &str,
                _: Vec<Value>,
            ) -> Result<Vec<NamedRow>, effect::Error> {
                Err(effect::Error::invalid("test", "this guest does not query"))
            }

            async fn execute(&self, _: &mut Buffer, _: &Access, _: &str, _: Vec<Value>) -> Result<u64, effect::Error> {
                Err(effect::Error::invalid("test", "this guest does not execute"))
            }
        }
    };
}
reads!(Nothing, std::future::ready(Ok(None)));
reads!(Stuck, std::future::pending());
reads!(Away, std::future::ready(Err(effect::Error::Unavailable("connection refused".into()))));
