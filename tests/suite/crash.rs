//! The host is killed at every boundary between two stages, and nothing is lost or done twice.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use ackwright_testkit::Host;

use crate::database::Kind;
use crate::load::{Load, Size};
use crate::oracle::check;
use crate::stage::{Announced, Stage};

const DEADLINE: Duration = Duration::from_secs(60);

/// Kills the host at the second pass of a point: by then other batches are before it and behind it. Only readers
/// pass `invoke`.
/// Returns the announcements, repeats included.
async fn survives(kind: Kind, point: &str) -> Vec<Announced> {
    let stage = Stage::new(kind).await;
    let load = Load::generate(11, Size { orders: 40, transfers: 40, poison: 3, readers: 20, repeats: 30 });
    // Half is there when the host starts, half comes while nobody is there.
    let (early, late) = load.letters.split_at(load.letters.len() / 2);
    stage.send(early).await;
    let mut host = Host::new().expect("a host");
    let toml = stage.shape().toml(host.admin());
    host.start(&toml, &[("ACKWRIGHT_CRASH", &format!("{point}#2"))]).expect("it starts");
    let status = host.died(DEADLINE).await.expect("it reaches the point");
    assert_eq!(status.signal(), Some(9), "it was killed, not ended: {status}");
    stage.send(late).await;
    stage.start(&mut host, &stage.shape(), &[]).await;
    check(&stage, &load, DEADLINE).await
}

macro_rules! points {
    ($($name:ident = $point:literal),* $(,)?) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::survives(crate::database::Kind::Postgres, $point).await;
            })*
        }

        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::survives(crate::database::Kind::Sqlite, $point).await;
            })*
        }
    };
}

points! {
    before_source = "source:before",
    after_source = "source:after",
    before_route = "route:before",
    before_identify = "identify:before",
    after_identify = "identify:after",
    before_claim = "claim:before",
    after_claim = "claim:after",
    before_invoke = "invoke:before",
    after_invoke = "invoke:after",
    before_apply = "apply:before",
    after_apply = "apply:after",
    before_commit = "commit:before",
    after_commit = "commit:after",
    before_settle = "settle:before",
    after_settle = "settle:after",
    before_relay = "relay:before",
    after_relay = "relay:after",
}

/// The oracle holds each repeat against its first: id, headers and body.
#[tokio::test(flavor = "multi_thread")]
async fn o06_what_was_published_before_the_kill_is_published_again_as_it_was() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let announced = survives(kind, "relay:after").await;
        let distinct: BTreeSet<_> = announced.iter().map(|announced| &announced.id).collect();
        assert!(announced.len() > distinct.len(), "{kind:?}: nothing was published twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d06_killed_again_and_again_under_load() {
    let stage = Stage::new(Kind::Postgres).await;
    let load = Load::generate(12, Size { orders: 300, transfers: 300, poison: 5, readers: 20, repeats: 30 });
    let mut host = Host::new().expect("a host");
    for (round, letters) in load.letters.chunks(load.letters.len() / 8 + 1).enumerate() {
        let shape = stage.shape();
        host.start(&shape.toml(host.admin()), &[]).expect("it starts");
        stage.send(letters).await;
        let some = (round + 1) as f64 * 5.0;
        host.until_metric("ackwright_deliveries_total", &[], DEADLINE, |deliveries| deliveries >= some).await;
        host.kill9().await.expect("it runs");
    }
    stage.start(&mut host, &stage.shape(), &[]).await;
    check(&stage, &load, DEADLINE).await;
}
