//! Intake: takes deliveries from a source, identifies them and hands each to its lane.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::identify::{Identified, identify};
use crate::pulse::Pulse;
use crate::route::Route;
use crate::settle::{Settlement, settle};
use crate::source::{Error, Source};
use crate::telemetry::{self, Count};

/// Most deliveries to take at once; more only delays the first of them.
const MOST: usize = 256;

/// Runs until the source ends or the host stops. Full lanes hold it back, and with it the broker.
pub async fn intake(
    route: &Route,
    source: &mut dyn Source,
    lanes: &[mpsc::Sender<Identified>],
    stop: &CancellationToken,
    pulse: &Pulse,
) -> Result<(), Error> {
    loop {
        pulse.idle();
        fail::fail_point!("source:before");
        let deliveries = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            deliveries = source.next(MOST) => deliveries,
        };
        let deliveries = match deliveries {
            Ok(deliveries) => deliveries,
            Err(Error::Ended) => return Ok(()),
            Err(error @ Error::Fatal(_)) => return Err(error),
        };
        fail::fail_point!("source:after");
        telemetry::count(Count::Deliveries, &route.settings.name, deliveries.len());
        let redelivered = deliveries.iter().filter(|d| d.redelivered).count();
        telemetry::count(Count::Redeliveries, &route.settings.name, redelivered);
        let mut deliveries = deliveries.into_iter();
        while let Some(delivery) = deliveries.next() {
            pulse.beat();
            let identified = identify(route, delivery, None).await;
            pulse.idle();
            if let Err(left) = hand_over(identified, lanes, stop).await {
                let mut back = vec![Settlement::requeue(left.receipt)];
                back.extend(deliveries.map(|d| Settlement::requeue(d.receipt)));
                settle(back).await;
                return Ok(());
            }
        }
    }
}

/// Gives a message to the lane of its order key. It comes back where the host stops first.
pub async fn hand_over(
    message: Identified,
    lanes: &[mpsc::Sender<Identified>],
    stop: &CancellationToken,
) -> Result<(), Box<Identified>> {
    let lane = &lanes[(message.order % lanes.len() as u64) as usize];
    let message = match lane.try_send(message) {
        Ok(()) => return Ok(()),
        Err(mpsc::error::TrySendError::Full(message) | mpsc::error::TrySendError::Closed(message)) => message,
    };
    tokio::select! {
        permit = lane.reserve() => match permit {
            Ok(permit) => {
                permit.send(message);
                Ok(())
            }
            Err(_) => Err(Box::new(message)),
        },
        () = stop.cancelled() => Err(Box::new(message)),
    }
}

/// Shared by the intake and the retries of a route.
pub type Lanes = Arc<[mpsc::Sender<Identified>]>;
