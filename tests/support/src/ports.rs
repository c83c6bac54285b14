//! Ports for servers that must know theirs before they start.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which systems take the ports of outgoing connections, so that none of those gets in between.
const RANGE: std::ops::Range<u32> = 20_000..32_000;

/// A loopback port that nobody listens on. Two processes that ask at the same time start at different places.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = RandomState::new().hash_one(std::process::id()) as u32;
    for _ in RANGE {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (RANGE.start + start.wrapping_add(step) % (RANGE.end - RANGE.start)) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {} and {}", RANGE.start, RANGE.end);
}
