//! A queue of the test's own, a source on it, and the broker's view of both.

use std::time::Duration;

use ackwright_brokers::rabbitmq::{Address, Publisher, PublisherSettings, Source, SourceSettings};
use ackwright_core::delivery::{Delivery, Place};
use ackwright_core::health::{Condition, Health};
use ackwright_core::outbox::Row;
use ackwright_core::settle::{Disposal, Finish, Tally};
use ackwright_core::source::Source as _;
use ackwright_testkit::{Depth, RabbitMq, rabbitmq, until};
use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use uuid::Uuid;

pub const SOON: Duration = Duration::from_secs(30);

pub struct Rig {
    pub node: &'static RabbitMq,
    pub url: String,
    pub health: Health,
    /// The producer's side.
    pub channel: Channel,
    _connection: Connection,
}

impl Rig {
    pub async fn new() -> Self {
        let node = rabbitmq().await;
        let url = node.vhost().await;
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Rig { node, url, health: Health::default(), channel, _connection: connection }
    }

    pub async fn queue(&self, name: &str, kind: &str) {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), durable, arguments).await.unwrap();
    }

    pub async fn send(&self, queue: &str, body: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions::default();
        let confirm = self.channel.basic_publish("".into(), queue.into(), options, body, properties).await.unwrap();
        assert!(confirm.await.unwrap().is_ack());
    }

    pub async fn send_numbers(&self, queue: &str, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.send(queue, number.to_string().as_bytes(), BasicProperties::default().with_delivery_mode(2)).await;
        }
    }

    pub fn settings(&self, queue: &str) -> SourceSettings {
        source_settings(&self.url, queue)
    }

    pub fn source(&self, settings: SourceSettings) -> Source {
        Source::open(settings, self.health.component("route.test")).unwrap()
    }

    pub fn publisher(&self, settings: PublisherSettings) -> Publisher {
        Publisher::open(settings, self.health.component("broker.test")).unwrap()
    }

    pub fn publisher_settings(&self) -> PublisherSettings {
        PublisherSettings::new(Address::parse(&self.url).unwrap())
    }

    pub async fn depth_is(&self, queue: &str, ready: u64, unacknowledged: u64) {
        let wanted = Depth { ready, unacknowledged };
        until(&format!("queue {queue} holds {wanted:?}"), SOON, async || {
            self.node.depth(&self.url, queue).await.ok().filter(|depth| *depth == wanted)
        })
        .await;
    }
}

pub fn source_settings(url: &str, queue: &str) -> SourceSettings {
    SourceSettings::new(Address::parse(url).unwrap(), queue)
}

/// Takes deliveries until there are so many.
pub async fn take(source: &mut Source, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let batch = tokio::time::timeout(SOON, source.next(count - taken.len())).await;
        taken.extend(batch.expect("the deliveries come").unwrap());
    }
    taken
}

/// What the pipeline does with a proof of commit, which only it can have.
pub async fn done(source: &Source, deliveries: Vec<Delivery>) -> Tally {
    let places = deliveries.into_iter().map(|d| (place_of(d), Disposal::Done(Finish::Applied))).collect();
    settle(source, places).await
}

pub async fn requeue(source: &Source, deliveries: Vec<Delivery>) -> Tally {
    settle(source, deliveries.into_iter().map(|d| (place_of(d), Disposal::Requeue)).collect()).await
}

#[expect(clippy::disallowed_methods, reason = "the settler itself is tested")]
pub async fn settle(source: &Source, places: Vec<(Place, Disposal)>) -> Tally {
    source.settler().settle(places).await
}

pub fn place_of(delivery: Delivery) -> Place {
    let place = delivery.receipt.place();
    // Dropping it would ask for a requeue.
    std::mem::forget(delivery.receipt);
    place
}

pub fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|d| String::from_utf8(d.message.body.as_ref().unwrap().to_vec()).unwrap()).collect()
}

pub async fn condition(health: &Health, name: &str, what: &str, wanted: impl Fn(&Condition) -> bool) -> Condition {
    let found = ackwright_testkit::try_until(what, SOON, async || {
        health.snapshot().remove(name).filter(|condition| wanted(condition))
    });
    match found.await {
        Ok(condition) => condition,
        Err(why) => panic!("{why}; it is {:?}", health.snapshot().get(name)),
    }
}

pub fn row(number: u128, destination: &str, order_key: &str) -> Row {
    Row {
        position: number as i64,
        id: Uuid::from_u128(number),
        broker: "test".into(),
        destination: destination.into(),
        order_key: order_key.into(),
        content_type: Some("text/plain".into()),
        headers: Vec::new(),
        body: Bytes::from(number.to_string()),
        attempts: 0,
    }
}
