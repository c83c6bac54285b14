//! End to end: the real binary between a real broker and a real database.

mod crash;
mod database;
mod duplicates;
mod hostile;
mod load;
mod local;
mod messages;
mod operation;
mod oracle;
mod outage;
mod probe;
mod stage;
mod tidy;
