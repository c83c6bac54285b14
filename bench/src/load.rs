//! The load: orders of 250 bytes, published to a quorum queue before a run or at a steady pace during it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use uuid::Uuid;

pub const QUEUE: &str = "orders";
/// Where the relay's messages end.
pub const OUT: &str = "order.booked";
pub const ACCOUNTS: i64 = 1000;
const BODY: usize = 250;
const WINDOW: usize = 1000;

/// What a queue is filled with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    pub messages: usize,
    /// Of a hundred messages, so many repeat an earlier one.
    pub duplicates: usize,
    /// Of a hundred messages, so many are refused by the handler.
    pub errors: usize,
}

#[derive(Clone, Debug)]
pub struct Order {
    pub id: Uuid,
    pub account: i64,
    /// Negative amounts are refused by every handler.
    pub amount: i64,
}

impl Order {
    fn nth(n: usize, wrong: bool) -> Self {
        let amount = (n % 97) as i64 + 1;
        let spread = mix(n as u128);
        let account = (spread % ACCOUNTS as u128) as i64;
        Order { id: Uuid::from_u128(spread), account, amount: if wrong { -amount } else { amount } }
    }

    fn body(&self) -> Vec<u8> {
        let Order { id, account, amount } = self;
        let at = micros();
        let mut text = format!(r#"{{"order":"{id}","account":{account},"amount":{amount},"at":{at},"note":""#);
        while text.len() < BODY - 2 {
            text.push('.');
        }
        text.push_str("\"}");
        text.into_bytes()
    }
}

/// Spreads numbers over 128 bits, so that ids come in no order.
fn mix(n: u128) -> u128 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    x ^= x >> 67;
    x = x.wrapping_mul(0xda94_2042_e4dd_58b5_0a2b_9f1c_3d5e_7a91);
    x ^ (x >> 61)
}

/// The benchmark's own clock is all that it compares with.
#[expect(clippy::disallowed_methods, reason = "a load generator stamps its messages")]
fn micros() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_micros()
}

/// What a correct consumer leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub orders: i64,
    pub balance: i64,
}

pub struct Load {
    connection: Connection,
    channel: Channel,
}

impl Load {
    pub async fn connect(url: &str) -> Result<Self> {
        let connection =
            Connection::connect(url, ConnectionProperties::default()).await.context("connect to RabbitMQ")?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        for queue in [QUEUE, OUT] {
            let mut arguments = FieldTable::default();
            arguments.insert(ShortString::from("x-queue-type"), AMQPValue::LongString("quorum".into()));
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.into(), options, arguments).await?;
        }
        Ok(Load { connection, channel })
    }

    /// Fills the queue, confirmed. A mix has duplicates or errors, not both.
    pub async fn fill(&self, mix: Mix) -> Result<Expected> {
        let mut expected = Expected::default();
        let mut published = 0;
        let mut fresh = 0;
        while published < mix.messages {
            let mut window = Vec::with_capacity(WINDOW);
            for _ in 0..WINDOW.min(mix.messages - published) {
                // Repeats lie a little behind the first, so that they meet it in the same batch or in the next.
                let repeat = fresh > 700 && published % 100 < mix.duplicates;
                let wrong = !repeat && published % 100 >= 100 - mix.errors;
                let n = if repeat { fresh - 1 - published % 700 } else { fresh };
                let order = Order::nth(n, wrong);
                if !repeat {
                    fresh += 1;
                    if !wrong {
                        expected.orders += 1;
                        expected.balance += order.amount;
                    }
                }
                window.push(self.publish(order.body()));
                published += 1;
            }
            for confirm in try_join_all(window).await? {
                ensure!(matches!(confirm.await?, Confirmation::Ack(_)), "the broker did not take a message");
            }
        }
        Ok(expected)
    }

    /// Publishes at a steady pace for a while.
    pub async fn pace(&self, rate: usize, time: Duration) -> Result<Expected> {
        let mut expected = Expected::default();
        let step = Duration::from_millis(2);
        let mut ticks = tokio::time::interval(step);
        let started = tokio::time::Instant::now();
        let mut sent = 0;
        let mut confirms = Vec::new();
        while started.elapsed() < time {
            ticks.tick().await;
            let due = (started.elapsed().as_secs_f64() * rate as f64) as usize;
            while sent < due {
                let order = Order::nth(sent, false);
                expected.orders += 1;
                expected.balance += order.amount;
                confirms.push(self.publish(order.body()).await?);
                sent += 1;
            }
        }
        for confirm in confirms {
            ensure!(matches!(confirm.await?, Confirmation::Ack(_)), "the broker did not take a message");
        }
        Ok(expected)
    }

    async fn publish(&self, body: Vec<u8>) -> Result<impl Future<Output = lapin::Result<Confirmation>> + use<>> {
        let properties = BasicProperties::default().with_delivery_mode(2).with_content_type("application/json".into());
        let sent =
            self.channel.basic_publish("".into(), QUEUE.into(), BasicPublishOptions::default(), &body, properties);
        Ok(sent.await?)
    }

    pub async fn close(self) -> Result<()> {
        Ok(self.connection.close(200, "done".into()).await?)
    }
}
