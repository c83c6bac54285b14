//! Sources and publishers that need no server, over real sockets and files, with a pipeline of one step.

mod file;
mod posting;
mod support;
mod webhook;
