//! The testkit keeps its promises: otherwise tests that rely on it prove nothing.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ackwright_testkit::{
    Hook, Keeper, Options, Postgres, Proxy, RabbitMq, Stop, Way, When, postgres, rabbitmq, try_until, until,
};
use nix::sys::signal::Signal;
use sqlx::{Connection, Executor, PgConnection, Row};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn waiting_in_vain_says_for_what() {
    let waited = try_until("pigs fly", Duration::from_millis(30), async || None::<()>).await;
    assert_eq!(waited.expect_err("they do not").to_string(), "waited 30ms in vain until pigs fly");
    let hung = try_until("a hung question is answered", Duration::from_millis(30), std::future::pending::<Option<()>>);
    assert!(hung.await.is_err());
}

/// Not a test of its own: the process that [`processes_and_folder_end_with_a_killed_test_process`] kills.
#[test]
fn keep_a_process_for_another_test_to_kill() {
    if std::env::var_os("TESTKIT_VICTIM").is_none() {
        return;
    }
    let keeper = Keeper::new("victim").expect("a folder");
    let kept = keeper.spawn("sleep", ["1000"], [], "log", Signal::SIGTERM).expect("sleep");
    println!("\nkept {} {}", kept.id(), keeper.folder().display());
    std::thread::park();
}

#[tokio::test]
async fn processes_and_folder_end_with_a_killed_test_process() {
    let mut victim = Command::new(std::env::current_exe().expect("a path"))
        .args(["keep_a_process_for_another_test_to_kill", "--exact", "--nocapture"])
        .env("TESTKIT_VICTIM", "yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    let output = BufReader::new(victim.stdout.take().expect("it was asked for"));
    let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("kept ")).expect("its announcement");
    let mut words = line.split(' ').skip(1);
    let process = format!("/proc/{}", words.next().expect("a process id"));
    let folder = words.next().expect("a folder").to_owned();
    assert!(Path::new(&process).exists() && Path::new(&folder).exists());

    victim.kill().expect("it runs");
    victim.wait().expect("it was killed");
    until("the kept process and its folder are gone", SOON, async || {
        (!Path::new(&process).exists() && !Path::new(&folder).exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_database_is_new_and_its_sessions_can_be_counted_and_cut() {
    let server = postgres().await;
    let (one, other) = (server.database().await, server.database().await);
    assert_ne!(one, other);
    let mut session = PgConnection::connect(&one).await.expect("it connects");
    session.execute("CREATE TABLE here (id int)").await.expect("it is ours");
    assert_eq!(server.sessions(&one).await.expect("an answer"), 1);
    assert_eq!(server.sessions(&other).await.expect("an answer"), 0);

    assert_eq!(server.idle_in_transaction(&one).await.expect("an answer"), 0);
    session.execute("BEGIN").await.expect("it begins");
    assert_eq!(server.idle_in_transaction(&one).await.expect("an answer"), 1);

    assert_eq!(server.terminate(&one).await.expect("an answer"), 1);
    session.execute("SELECT 1").await.expect_err("the session is cut");
    server.until_no_sessions(&one, SOON).await;
}

#[tokio::test]
async fn a_private_database_server_keeps_what_was_committed_over_a_crash() {
    let settings = vec![("idle_in_transaction_session_timeout".to_owned(), "7s".to_owned())];
    let server = Postgres::start_private(Options { settings, ..Options::default() }).await.expect("it starts");
    let url = server.database().await;
    let mut session = PgConnection::connect(&url).await.expect("it connects");
    let shown = session.fetch_one("SHOW idle_in_transaction_session_timeout").await.expect("an answer");
    assert_eq!(shown.get::<String, _>(0), "7s");
    session.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)").await.expect("it is committed");
    session.execute("BEGIN; INSERT INTO kept VALUES (2)").await.expect("it is written");
    for how in [Stop::Immediate, Stop::Fast] {
        server.stop(how).await.expect("it stops");
        PgConnection::connect(&url).await.expect_err("nobody listens");
        server.start().await.expect("it starts again");
        let mut session = PgConnection::connect(&url).await.expect("it connects");
        let count = session.fetch_one("SELECT count(*) FROM kept").await.expect("an answer");
        assert_eq!(count.get::<i64, _>(0), 1, "what was not committed is gone, after {how:?}");
    }
}

#[tokio::test]
async fn each_vhost_is_new_and_the_broker_answers_questions() {
    let broker = rabbitmq().await;
    let (one, other) = (broker.vhost().await, broker.vhost().await);
    assert_ne!(one, other);
    assert_eq!(broker.connections(&one).await.expect("an answer"), 0);
    assert_eq!(broker.close_connections(&one).await.expect("an answer"), 0);
    broker.depth(&one, "absent").await.expect_err("there is no such queue");
    declare(broker, &one, "here").await;
    assert_eq!(broker.depth(&one, "here").await.expect("an answer").ready, 0);
    broker.depth(&other, "here").await.expect_err("it is in the other vhost");
    broker.delete_queue(&one, "here").await.expect("it is there");
    broker.depth(&one, "here").await.expect_err("it is deleted");
    broker.eval("1 = 2").await.expect_err("it does not match");
}

#[tokio::test]
async fn a_private_broker_keeps_durable_queues_over_kill_and_stop_and_raises_alarms() {
    let broker = RabbitMq::start_private().await.expect("it starts");
    let vhost = broker.vhost().await;
    declare(&broker, &vhost, "durable").await;
    broker.memory_alarm(true).await.expect("it is set");
    assert!(broker.eval("rabbit_alarm:get_alarms()").await.expect("an answer").contains("memory"));
    broker.memory_alarm(false).await.expect("it is cleared");
    assert_eq!(broker.eval("rabbit_alarm:get_alarms()").await.expect("an answer"), "[]");
    broker.kill().await.expect("it runs");
    broker.eval("1").await.expect_err("nobody listens");
    broker.start().await.expect("it starts again");
    broker.depth(&vhost, "durable").await.expect("it is there after a crash");
    broker.stop().await.expect("it runs");
    broker.start().await.expect("it starts again");
    broker.depth(&vhost, "durable").await.expect("it is there after a stop");
}

async fn declare(broker: &RabbitMq, url: &str, queue: &str) {
    let vhost = url.rsplit('/').next().expect("a vhost");
    let declare = format!(
        "element(1, rabbit_amqqueue:declare(rabbit_misc:r(<<\"{vhost}\">>, queue, <<\"{queue}\">>),
         true, false, [], none, <<\"test\">>))"
    );
    assert_eq!(broker.eval(&declare).await.expect("an answer"), "new");
}

/// A server that sends back what it gets, and tells how much that was.
async fn echo() -> (SocketAddr, tokio::sync::watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (got, hears) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let got = got.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    got.send_modify(|sum| *sum += length);
                    if stream.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, hears)
}

async fn say(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(text).await?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn the_proxy_forwards_cuts_refuses_and_holds_back() {
    let (server, _) = echo().await;
    let proxy = Proxy::start(server).await.expect("it listens");
    let mut stream = TcpStream::connect(proxy.address()).await.expect("it connects");
    assert_eq!(say(&mut stream, b"hello").await.expect("an answer"), b"hello");
    assert_eq!((proxy.accepted(), proxy.live()), (1, 1));

    proxy.black_hole();
    let silence = tokio::time::timeout(Duration::from_millis(200), say(&mut stream, b"lost?"));
    silence.await.expect_err("nothing passes and nothing is closed");
    proxy.resume();
    let mut late = [0; 5];
    stream.read_exact(&mut late).await.expect("it passes now");
    assert_eq!(&late, b"lost?");

    proxy.cut();
    let error = say(&mut stream, b"again").await.expect_err("the connection is cut");
    assert!(matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe), "{error}");
    until("the proxy has let go", SOON, async || (proxy.live() == 0).then_some(())).await;

    proxy.refuse();
    let mut refused = TcpStream::connect(proxy.address()).await.expect("the kernel accepts");
    say(&mut refused, b"anybody?").await.expect_err("it is reset at once");
    proxy.resume();
    let mut stream = TcpStream::connect(proxy.address()).await.expect("it connects");
    assert_eq!(say(&mut stream, b"back").await.expect("an answer"), b"back");
}

#[tokio::test]
async fn the_proxy_cuts_before_a_pattern_or_after_it_was_answered() {
    for (when, arrives) in [(When::Before, 0), (When::Answered, 6)] {
        let (server, mut got) = echo().await;
        let proxy = Proxy::start(server).await.expect("it listens");
        let mut stream = TcpStream::connect(proxy.address()).await.expect("it connects");
        let hook = Hook { way: Way::ToServer, pattern: b"COMMIT".into(), when, skip: 1 };
        let fired = proxy.hook(hook);
        assert_eq!(say(&mut stream, b"COMMIT").await.expect("the first passes"), b"COMMIT");
        say(&mut stream, b"COMMIT").await.expect_err("the second is cut");
        fired.await.expect("the hook tells");
        got.wait_for(|sum| *sum == 6 + arrives).await.expect("the server tells");
        let mut stream = TcpStream::connect(proxy.address()).await.expect("it connects");
        assert_eq!(say(&mut stream, b"COMMIT").await.expect("a hook strikes once"), b"COMMIT");
    }
}

#[tokio::test]
async fn the_proxy_leads_where_a_url_says() {
    let (server, _) = echo().await;
    let url = format!("amqp://guest:guest@{server}/vhost?heartbeat=5");
    let (proxy, through) = Proxy::before(&url).await.expect("it listens");
    assert_eq!(through, format!("amqp://guest:guest@{}/vhost?heartbeat=5", proxy.address()));
}
