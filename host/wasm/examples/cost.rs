//! What one message costs in the sandbox: `cargo run --example cost -- plugin.wasm body.json [messages]`.
//!
//! Runs `prepare` with a catalog that has no tables, so use it with a plugin and a body that get as far as you want to
//! measure; the outcome of the first run is printed.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use ackwright_core::access::{Access, Grants};
use ackwright_core::catalog::Catalog;
use ackwright_core::message::Message;
use ackwright_wasm::{Engine, Limits, Settings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(plugin), Some(body)) = (arguments.next(), arguments.next()) else {
        return Err("usage: cost PLUGIN.wasm BODY [MESSAGES]".into());
    };
    let messages: u32 = arguments.next().map_or(Ok(20_000), |n| n.parse())?;
    let access = Access::resolve(&Grants::default(), Arc::new(Catalog::default())).map_err(|m| m.join("; "))?;
    let engine = Engine::new(Settings::default())?;
    let started = Instant::now();
    let plugin = engine.load("measured", std::fs::read(plugin)?).await?;
    println!("load: {:?}, pooled: {}", started.elapsed(), engine.pooled());
    let handler = plugin.bind(access, Limits::default(), serde_json::Value::Null, "measured")?;
    let message = Arc::new(Message {
        id: Some("m1".into()),
        source: "queue".into(),
        body: Some(std::fs::read(body)?.into()),
        ..Message::default()
    });
    println!("first: {:?}", handler.prepare(&message).await);
    for round in 1..=5 {
        let started = Instant::now();
        for _ in 0..messages {
            std::hint::black_box(handler.prepare(&message).await);
        }
        let each = started.elapsed() / messages;
        println!("round {round}: {each:?} a message");
    }
    Ok(())
}
