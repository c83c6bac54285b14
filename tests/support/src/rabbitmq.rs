//! A RabbitMQ node of the test's own.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::OnceCell;

use crate::keeper::{Keeper, Kept};
use crate::ports::free_port;
use crate::wait::try_until;

const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const START: Duration = Duration::from_secs(90);

/// The node that all tests of this process share; started by the first that asks. Each takes a vhost of its own.
pub async fn rabbitmq() -> &'static RabbitMq {
    static SERVER: OnceCell<RabbitMq> = OnceCell::const_new();
    SERVER
        .get_or_try_init(RabbitMq::start_private)
        .await
        .unwrap_or_else(|error| panic!("cannot start RabbitMQ: {error:#}"))
}

#[derive(Debug)]
pub struct RabbitMq {
    keeper: Keeper,
    port: u16,
    environment: Vec<(String, String)>,
    /// Erlang's port mapper. A node would start one that outlives it and listens everywhere.
    _mapper: Kept,
    process: Mutex<Option<Kept>>,
}

/// Messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    pub ready: u64,
    pub unacknowledged: u64,
}

impl RabbitMq {
    /// A node that one test has for itself, to stop and start it.
    pub async fn start_private() -> Result<Self> {
        ensure!(std::path::Path::new(SERVER).exists(), "RabbitMQ is not installed; `cargo xtask test` installs it");
        let keeper = Keeper::new("rabbitmq")?;
        let folder = keeper.folder().display().to_string();
        for (name, content) in [
            ("control.erl", include_str!("control.erl")),
            ("plugins", "[].\n"),
            ("environment", ""),
            // Queues with stuck consumers shall show within a test, and a full disk is not the test's business.
            ("rabbitmq.conf", "disk_free_limit.absolute = 1MB\nlog.console = true\nlog.console.level = warning\n"),
        ] {
            std::fs::write(keeper.folder().join(name), content)?;
        }
        let port = free_port();
        let mapper_port = free_port();
        let environment: Vec<_> = [
            ("HOME", folder.clone()),
            ("RABBITMQ_NODENAME", format!("ackwright{port}@localhost")),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_NODE_PORT", port.to_string()),
            ("RABBITMQ_DIST_PORT", free_port().to_string()),
            ("ERL_EPMD_PORT", mapper_port.to_string()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_MNESIA_BASE", format!("{folder}/data")),
            ("RABBITMQ_LOG_BASE", format!("{folder}/logs")),
            ("RABBITMQ_LOGS", "-".into()),
            ("RABBITMQ_CONFIG_FILE", format!("{folder}/rabbitmq.conf")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{folder}/plugins")),
            ("RABBITMQ_CONF_ENV_FILE", format!("{folder}/environment")),
            // Makes the start script become the node instead of its parent.
            ("RUNNING_UNDER_SYSTEMD", "true".into()),
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!("-kernel inet_dist_use_interface {{127,0,0,1}} -eval file:eval(\"{folder}/control.erl\")."),
            ),
            ("ACKWRIGHT_CONTROL", format!("{folder}/control")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let mapper = keeper.spawn(
            "epmd",
            ["-port", &mapper_port.to_string(), "-address", "127.0.0.1"],
            [],
            "epmd.log",
            Signal::SIGTERM,
        )?;
        let node = RabbitMq { keeper, port, environment, _mapper: mapper, process: Mutex::new(None) };
        node.start().await?;
        Ok(node)
    }

    /// Starts the node again after [`Self::stop`] or [`Self::kill`], on the same port and with the same data.
    pub async fn start(&self) -> Result<()> {
        ensure!(self.slot().is_none(), "the node is running already");
        let none: [&str; 0] = [];
        *self.slot() = Some(self.keeper.spawn(SERVER, none, self.environment.clone(), "log", Signal::SIGKILL)?);
        let ready = try_until("RabbitMQ takes connections", START, async || {
            let ended = self.slot().as_mut().is_none_or(|process| process.ended().is_some());
            let answer = self.eval("rabbit:is_running() andalso rabbit:await_startup() =:= ok").await;
            (ended || answer.is_ok_and(|answer| answer == "true")).then_some(ended)
        });
        match ready.await {
            Ok(false) => Ok(()),
            Ok(true) => {
                *self.slot() = None;
                bail!("RabbitMQ ended while it started:\n{}", self.keeper.tail("log"))
            }
            Err(why) => bail!("{why}\n{}", self.keeper.tail("log")),
        }
    }

    /// Stops the node in good order: queues are synced, connections are closed with a reason.
    pub async fn stop(&self) -> Result<()> {
        let Some(mut process) = self.slot().take() else { bail!("the node is not running") };
        process.signal(Signal::SIGTERM);
        process.wait("RabbitMQ", Duration::from_secs(60)).await?;
        Ok(())
    }

    /// Kills the node where it stands.
    pub async fn kill(&self) -> Result<()> {
        let Some(mut process) = self.slot().take() else { bail!("the node is not running") };
        process.kill();
        process.wait("RabbitMQ", Duration::from_secs(10)).await?;
        Ok(())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Kept>> {
        self.process.lock().expect("nobody panics while holding it")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a vhost on this node.
    pub fn url(&self, vhost: &str) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/{vhost}", self.port)
    }

    /// The URL of a new, empty vhost.
    pub async fn vhost(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let create = format!(
            "ok = rabbit_vhost:add(<<\"{name}\">>, <<\"test\">>), ok = rabbit_auth_backend_internal:set_permissions(
             <<\"guest\">>, <<\"{name}\">>, <<\".*\">>, <<\".*\">>, <<\".*\">>, <<\"test\">>)"
        );
        self.eval(&create).await.unwrap_or_else(|error| panic!("cannot create vhost {name}: {error:#}"));
        self.url(&name)
    }

    /// Evaluates an Erlang expression inside the node and returns its value as text.
    pub async fn eval(&self, expression: &str) -> Result<String> {
        let path: PathBuf = self.keeper.folder().join("control");
        let mut socket = UnixStream::connect(&path).await.context("the node does not run")?;
        let text = format!("{expression}.");
        socket.write_u32(text.len() as u32).await?;
        socket.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; socket.read_u32().await? as usize];
        socket.read_exact(&mut answer).await?;
        let answer = String::from_utf8(answer)?;
        match answer.split_at_checked(1) {
            Some(("+", value)) => Ok(value.to_owned()),
            _ => bail!("{expression}: {answer}"),
        }
    }

    /// Raises or clears the memory alarm, under which the node stops reading from connections that publish.
    pub async fn memory_alarm(&self, on: bool) -> Result<()> {
        let share = if on { "0.00001" } else { "0.4" };
        self.eval(&format!("vm_memory_monitor:set_vm_memory_high_watermark({share})")).await?;
        Ok(())
    }

    /// What a queue of the vhost at `url` holds; an error where there is no such queue.
    pub async fn depth(&self, url: &str, queue: &str) -> Result<Depth> {
        let answer = self
            .eval(&format!(
                "{{ok, Q}} = rabbit_amqqueue:lookup({}), [{{_, R}}, {{_, U}}] =
                 rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged]), [R, U]",
                resource(url, queue)
            ))
            .await?;
        match serde_json::from_str::<[u64; 2]>(&answer) {
            Ok([ready, unacknowledged]) => Ok(Depth { ready, unacknowledged }),
            // A quorum queue has no numbers before its first report.
            Err(_) => bail!("queue {queue} has no depth yet: {answer}"),
        }
    }

    pub async fn delete_queue(&self, url: &str, queue: &str) -> Result<()> {
        self.eval(&format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup({}), {{ok, _}} =
             rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
            resource(url, queue)
        ))
        .await?;
        Ok(())
    }

    /// Client connections to the vhost at `url`.
    pub async fn connections(&self, url: &str) -> Result<u64> {
        let answer = self.eval(&format!("length({})", connections(url))).await?;
        Ok(answer.parse()?)
    }

    /// Closes all client connections to the vhost at `url` from the broker's side; returns how many there were.
    pub async fn close_connections(&self, url: &str) -> Result<u64> {
        let answer = self
            .eval(&format!(
                "length([rabbit_networking:close_connection(P, \"closed by the test\") || P <- {}])",
                connections(url)
            ))
            .await?;
        Ok(answer.parse()?)
    }
}

fn vhost_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

fn resource(url: &str, queue: &str) -> String {
    format!("rabbit_misc:r(<<\"{}\">>, queue, <<\"{queue}\">>)", vhost_of(url))
}

fn connections(url: &str) -> String {
    // A connection that ends while it is asked is none.
    format!(
        "[P || P <- rabbit_networking:connections(),
         (catch rabbit_networking:connection_info(P, [vhost])) =:= [{{vhost, <<\"{}\">>}}]]",
        vhost_of(url)
    )
}
