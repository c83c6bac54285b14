//! What a plugin must not be able to do to the host.

use std::cell::Cell;
use std::hint::black_box;

use ackwright_sdk::log;

/// A name of its own, to be found in the trap's backtrace.
#[inline(never)]
pub fn panic_with(why: &str) -> ! {
    panic!("{why}")
}

#[inline(never)]
pub fn endless() -> ! {
    let mut state = 1_u64;
    loop {
        state = black_box(xorshift(state));
    }
}

#[inline(never)]
pub fn endless_logging() -> ! {
    loop {
        log::write(log::Level::Trace, "again", &[]);
    }
}

#[inline(never)]
pub fn memory_bomb() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1 << 20]));
    }
}

#[inline(never)]
pub fn recurse_without_end() {
    black_box(recurse(black_box(0)));
}

/// Not a tail call, and with a frame that the optimiser cannot drop.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 8]);
    let below = if depth == u64::MAX { 0 } else { recurse(depth + 1) };
    below.wrapping_add(black_box(frame)[7])
}

#[inline(never)]
pub fn spin(rounds: u64) {
    let mut state = 1_u64;
    for _ in 0..rounds {
        state = black_box(xorshift(state));
    }
}

fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// A text that differs each time a guest asks. With fresh guests and a fixed clock only the guest's own memory can
/// tell two runs apart, so this is unstable exactly where a guest is used twice.
pub fn unstable() -> String {
    thread_local!(static CALLS: Cell<u64> = const { Cell::new(0) });
    CALLS.with(|calls| {
        calls.set(calls.get() + 1);
        format!("call {}", calls.get())
    })
}
