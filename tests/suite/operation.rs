//! What operators do: stop, roll, restart.

use std::time::Duration;

use crate::database::Kind;
use crate::load::{Load, Size};
use crate::oracle::check;
use crate::stage::Stage;

const DEADLINE: Duration = Duration::from_secs(60);
const RESTARTS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn p01_rolling_restarts_under_load_lose_nothing_and_exit_with_zero() {
    let stage = Stage::new(Kind::Postgres).await;
    let mut hosts = [stage.host().await, stage.host().await];
    let load = Load::generate(31, Size { orders: 300, transfers: 300, poison: 5, readers: 30, repeats: 20 });
    for (round, letters) in load.letters.chunks(load.letters.len() / RESTARTS + 1).enumerate() {
        stage.send(letters).await;
        let host = &mut hosts[round % 2];
        let status = host.terminate(Duration::from_secs(12)).await.expect("it drains within its budget");
        assert!(status.success(), "round {round}: {status}");
        stage.start(host, &stage.shape(), &[]).await;
    }
    check(&stage, &load, DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_host_drains_at_once() {
    let stage = Stage::new(Kind::Sqlite).await;
    let mut host = stage.host().await;
    let status = host.terminate(Duration::from_secs(5)).await.expect("it ends");
    assert!(status.success(), "{status}");
}
