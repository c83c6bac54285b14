//! Broker, queues, database and configuration of one test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackwright_testkit::{Host, RabbitMq, rabbitmq};
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::database::{Database, Kind};
use crate::load::{Letter, Load};

/// A host that starts while compilers have the machine.
pub const START: Duration = Duration::from_secs(60);
/// Where coupons are announced.
pub const ISSUED: &str = "coupon.issued";

pub struct Stage {
    pub database: Database,
    pub broker: &'static RabbitMq,
    /// The vhost, without any proxy before it.
    pub vhost: String,
    post: Post,
}

/// What the hosts of a stage are told. Small batches, so that a test of a hundred messages sees many.
#[derive(Clone, Debug)]
pub struct Shape {
    pub database: String,
    pub broker: String,
    pub lanes: u32,
    pub batch: u32,
}

impl Stage {
    pub async fn new(kind: Kind) -> Self {
        Self::with(Database::new(kind).await, rabbitmq().await).await
    }

    pub async fn with(database: Database, broker: &'static RabbitMq) -> Self {
        for statement in Load::accounts() {
            database.execute(&statement).await;
        }
        let vhost = broker.vhost().await;
        let post = Post::open(&vhost).await;
        let stage = Stage { database, broker, vhost, post };
        for queue in ["orders", "transfers", "probe", "probe-too", ISSUED] {
            stage.queue(queue).await;
        }
        stage
    }

    pub async fn queue(&self, name: &str) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declare = self.post.channel.queue_declare(name.into(), options, FieldTable::default());
        declare.await.expect("a queue");
    }

    pub fn shape(&self) -> Shape {
        Shape { database: self.database.url(), broker: self.vhost.clone(), lanes: 2, batch: 8 }
    }

    /// Starts a host and waits until it is ready.
    pub async fn host(&self) -> Host {
        let mut host = Host::new().expect("a host");
        self.start(&mut host, &self.shape(), &[]).await;
        host
    }

    pub async fn start(&self, host: &mut Host, shape: &Shape, environment: &[(&str, &str)]) {
        host.start(&shape.toml(host.admin()), environment).expect("it starts");
        host.ready(START).await.expect("it is ready");
    }

    /// Connects again after the broker was away.
    pub async fn reconnect(&mut self) {
        self.post = Post::open(&self.vhost).await;
    }

    /// Publishes letters and waits until the broker has them all.
    pub async fn send(&self, letters: &[Letter]) {
        let mut confirms = Vec::with_capacity(letters.len());
        for letter in letters {
            confirms.push(self.post.publish(letter, FieldTable::default()).await);
        }
        for confirm in confirms {
            assert!(confirm.await.expect("the broker answers").is_ack());
        }
    }

    /// The same for one letter with headers.
    pub async fn send_with_headers(&self, letter: &Letter, headers: FieldTable) {
        let confirm = self.post.publish(letter, headers).await;
        assert!(confirm.await.expect("the broker answers").is_ack());
    }

    /// Takes everything that is in the queue of announcements now.
    pub async fn announced(&self) -> Vec<Announced> {
        let mut all = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = self.post.channel.basic_get(ISSUED.into(), options).await.expect("an answer") {
            let id = message.properties.message_id().as_ref().map(ToString::to_string);
            let headers = message.properties.headers().clone().unwrap_or_default();
            all.push(Announced { id: id.expect("an id"), headers, body: message.delivery.data });
        }
        all
    }
}

/// A message of the outbox as the broker has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Announced {
    pub id: String,
    pub headers: FieldTable,
    pub body: Vec<u8>,
}

impl Shape {
    pub fn toml(&self, admin: SocketAddr) -> String {
        let Shape { database, broker, lanes, batch } = self;
        let plugins = plugins().display().to_string();
        let prefetch = batch * lanes * 2;
        format!(
            r#"
[host]
admin = "{admin}"
drain_timeout = "10s"
log = {{ level = "info", format = "json" }}

[database.main]
url = "{database}"
migrate = true

[broker.events]
kind = "rabbitmq"
url = "{broker}"
heartbeat = "5s"

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
broker = "events"
queue = "orders"
database = "main"
lanes = {lanes}
batch = {batch}
prefetch = {prefetch}
plugins = [{{ use = "coupon" }}]

[route.transfers]
broker = "events"
queue = "transfers"
database = "main"
lanes = {lanes}
batch = {batch}
prefetch = {prefetch}
plugins = [{{ use = "ledger" }}]

[plugin.probe]
path = "{plugins}/probe.wasm"
grants.read = ["probe_rows"]
grants.write = ["probe_rows", "probe_numbers"]
grants.emit = ["events:probe.*"]
limits = {{ time = "1s", wall = "5s", memory = "16MiB" }}

[route.probe]
broker = "events"
queue = "probe"
database = "main"
lanes = {lanes}
batch = {batch}
prefetch = {prefetch}
retry = {{ attempts = 4, initial = "200ms", max = "400ms" }}
plugins = [{{ use = "probe" }}]

# Another consumer, to which the same messages are new.
[route.probe-too]
broker = "events"
queue = "probe-too"
group = "second"
database = "main"
batch = {batch}
prefetch = {prefetch}
plugins = [{{ use = "probe" }}]
"#
        )
    }
}

/// Where `cargo xtask plugins` puts them.
pub fn plugins() -> PathBuf {
    root().join("target/plugins")
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_path_buf()
}

/// The test's own connection to the broker.
struct Post {
    channel: Channel,
    /// Closes with the last handle.
    _connection: Connection,
}

impl Post {
    async fn open(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("it connects");
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        Post { channel, _connection: connection }
    }

    async fn publish(&self, letter: &Letter, headers: FieldTable) -> lapin::PublisherConfirm {
        let persistent = BasicProperties::default().with_delivery_mode(2).with_headers(headers);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let publish = self.channel.basic_publish("".into(), letter.queue.into(), options, &letter.body, persistent);
        publish.await.expect("it is sent")
    }
}
