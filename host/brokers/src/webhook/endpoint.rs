//! One path: its open deliveries and the senders that wait for their settlement.
//!
//! **Invariant:** an open delivery holds a permit until it is settled, whether or not its sender still waits, so
//! that memory stays bounded when senders give up and send again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ackwright_core::delivery::Place;
use ackwright_core::message::Message;
use ackwright_core::settle::{Disposal, Settler, Tally};
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use super::answer::Answer;

pub struct Endpoint {
    generation: u64,
    most: usize,
    state: Mutex<State>,
}

struct State {
    /// Absent once the route takes no more deliveries.
    queue: Option<mpsc::UnboundedSender<Queued>>,
    open: HashMap<u64, oneshot::Sender<Answer>>,
    next: u64,
}

/// A message that no lane has taken yet.
#[derive(Debug)]
pub struct Queued {
    pub message: Arc<Message>,
    pub place: Place,
}

impl Endpoint {
    pub fn new(generation: u64, most: usize) -> (Arc<Self>, mpsc::UnboundedReceiver<Queued>) {
        let (queue, queued) = mpsc::unbounded_channel();
        let state = Mutex::new(State { queue: Some(queue), open: HashMap::new(), next: 0 });
        (Arc::new(Endpoint { generation, most, state }), queued)
    }

    /// Why a delivery would be refused now.
    pub fn refusal(&self) -> Option<Answer> {
        self.state().refusal(self.most)
    }

    pub fn enqueue(&self, message: Message) -> Result<oneshot::Receiver<Answer>, Answer> {
        let mut state = self.state();
        if let Some(refusal) = state.refusal(self.most) {
            return Err(refusal);
        }
        let position = state.next;
        let place = Place { generation: self.generation, stream: 0, position };
        let queued = Queued { message: Arc::new(message), place };
        if state.queue.as_ref().is_none_or(|queue| queue.send(queued).is_err()) {
            return Err(Answer::Closed);
        }
        state.next += 1;
        let (answer, answered) = oneshot::channel();
        state.open.insert(position, answer);
        Ok(answered)
    }

    /// Takes no more deliveries; open ones go on.
    pub fn stop(&self) {
        self.state().queue = None;
    }

    /// Sends all senders away that still wait. What runs on can be settled no more.
    pub fn close(&self) {
        let mut state = self.state();
        state.queue = None;
        for (_, answer) in state.open.drain() {
            // A sender that has gone needs no answer.
            let _ = answer.send(Answer::Closed);
        }
    }

    /// Ends a delivery; false where it was not open or its sender has gone.
    pub fn answer(&self, place: Place, answer: Answer) -> bool {
        if place.generation != self.generation {
            return false;
        }
        let open = self.state().open.remove(&place.position);
        open.is_some_and(|sender| sender.send(answer).is_ok())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is whole before anything can panic.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl State {
    fn refusal(&self, most: usize) -> Option<Answer> {
        match &self.queue {
            None => Some(Answer::Closed),
            Some(_) if self.open.len() >= most => Some(Answer::Full),
            Some(_) => None,
        }
    }
}

#[async_trait]
impl Settler for Endpoint {
    async fn settle(&self, places: Vec<(Place, Disposal)>) -> Tally {
        let mut tally = Tally::default();
        for (place, disposal) in places {
            if self.answer(place, Answer::Settled(disposal)) {
                tally.settled += 1;
            } else {
                tally.void += 1;
            }
        }
        tally
    }

    fn forgotten(&self, place: Place) {
        tracing::error!(position = place.position, "delivery dropped unsettled, sender is told to send it again");
        self.answer(place, Answer::Settled(Disposal::Requeue));
    }
}
