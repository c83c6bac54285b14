//! What was handed over and is not finished.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ackwright_core::delivery::Place;
use ackwright_core::health::Reporter;
use ackwright_core::message::Message;
use ackwright_core::position::{OutOfOrder, Prefix, Progress};
use ackwright_core::settle::{Disposal, Settler, Tally};
use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bookmark::{self, Bookmark};

pub struct Ledger {
    position_file: PathBuf,
    reporter: Reporter,
    requeue_delay: Duration,
    state: Mutex<State>,
    /// Something was settled: the reader has room, or a line to hand over again.
    pub changed: Notify,
    saving: tokio::sync::Mutex<()>,
}

struct State {
    /// Counts the files that were opened.
    generation: u64,
    /// The file being read; absent before the first is open and after `close`.
    file: Option<Arc<File>>,
    prefix: Prefix,
    open: HashMap<u64, Arc<Message>>,
    again: VecDeque<(Instant, u64)>,
    saved: Option<u64>,
}

impl Ledger {
    pub fn new(position_file: PathBuf, reporter: Reporter, requeue_delay: Duration) -> Self {
        let state = State {
            generation: 0,
            file: None,
            prefix: Prefix::new(0),
            open: HashMap::new(),
            again: VecDeque::new(),
            saved: None,
        };
        let (state, changed, saving) = (Mutex::new(state), Notify::new(), tokio::sync::Mutex::default());
        Ledger { position_file, reporter, requeue_delay, state, changed, saving }
    }

    /// From now on only lines of this file count; receipts of the one before are void.
    pub fn start(&self, file: Arc<File>, offset: u64, saved: bool) {
        let mut state = self.state();
        *state = State {
            generation: state.generation + 1,
            file: Some(file),
            prefix: Prefix::new(offset),
            open: HashMap::new(),
            again: VecDeque::new(),
            saved: saved.then_some(offset),
        };
    }

    /// Voids all receipts.
    pub fn close(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.file = None;
        state.open.clear();
        state.again.clear();
    }

    pub fn register(&self, position: u64, next: u64, message: &Arc<Message>) -> Result<Place, OutOfOrder> {
        let mut state = self.state();
        state.prefix.register(position, next)?;
        state.open.insert(position, Arc::clone(message));
        Ok(Place { generation: state.generation, stream: 0, position })
    }

    /// Lines that were handed back and may go out again.
    pub fn again(&self, most: usize) -> Vec<(Place, Arc<Message>)> {
        let mut state = self.state();
        let now = Instant::now();
        let mut due = Vec::new();
        while due.len() < most
            && let Some((_, position)) = state.again.pop_front_if(|(at, _)| *at <= now)
        {
            if let Some(message) = state.open.get(&position) {
                due.push((Place { generation: state.generation, stream: 0, position }, Arc::clone(message)));
            }
        }
        due
    }

    /// When the next handed-back line may go out again.
    pub fn next_again(&self) -> Option<Instant> {
        self.state().again.front().map(|(at, _)| *at)
    }

    /// Lines kept, finished ones behind an open one included.
    pub fn held(&self) -> usize {
        self.state().prefix.held()
    }

    /// Writes the position down where it has moved.
    pub async fn save(&self) {
        let _turn = self.saving.lock().await;
        let (file, end) = {
            let state = self.state();
            match &state.file {
                Some(file) if state.saved != Some(state.prefix.end()) => (Arc::clone(file), state.prefix.end()),
                _ => return,
            }
        };
        let (path, of) = (self.position_file.clone(), Arc::clone(&file));
        let write = move || {
            let bookmark = Bookmark::of(&of, end).map_err(bookmark::failed("read the start of the file for", &path))?;
            bookmark.save(&path)
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => {
                let mut state = self.state();
                if state.file.as_ref().is_some_and(|now| Arc::ptr_eq(now, &file)) {
                    state.saved = Some(end);
                }
                drop(state);
                self.reporter.ready();
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, "position not saved, lines come again after a restart");
                self.reporter.down(format!("{error}; lines come again after a restart"));
            }
            Err(error) => tracing::error!(error = %error, "saving the position did not end"),
        }
    }

    fn hand_back(&self, state: &mut State, place: Place) -> bool {
        let open = place.generation == state.generation && state.prefix.is_open(place.position);
        // At most once in the list, though a receipt settles only once anyway.
        let listed = state.again.iter().any(|(_, position)| *position == place.position);
        if open && !listed {
            state.again.push_back((Instant::now() + self.requeue_delay, place.position));
        }
        open && !listed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[async_trait]
impl Settler for Ledger {
    async fn settle(&self, places: Vec<(Place, Disposal)>) -> Tally {
        let mut tally = Tally::default();
        let mut advanced = false;
        {
            let mut state = self.state();
            for (place, disposal) in places {
                let settled = match disposal {
                    Disposal::Requeue => self.hand_back(&mut state, place),
                    Disposal::Done(_) if place.generation != state.generation => false,
                    Disposal::Done(_) => {
                        let progress = state.prefix.finish(place.position);
                        state.open.remove(&place.position);
                        advanced |= matches!(progress, Progress::Advanced(_));
                        progress != Progress::Unknown
                    }
                };
                if settled {
                    tally.settled += 1;
                } else {
                    tally.void += 1;
                }
            }
        }
        if advanced {
            self.save().await;
        }
        // After saving, so that a reader that sees everything finished finds it written down too.
        self.changed.notify_one();
        tally
    }

    fn forgotten(&self, place: Place) {
        tracing::error!(position = place.position, "line dropped unsettled, it is handed over again");
        let mut state = self.state();
        self.hand_back(&mut state, place);
        drop(state);
        self.changed.notify_one();
    }
}
