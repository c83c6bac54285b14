//! The demo's stream: orders by webhook, transfers by file, with duplicates, reorderings, and messages that can
//! never be applied; and what must come of it, computed from the messages alone.

use std::collections::BTreeMap;

use serde_json::json;

pub const ACCOUNTS: u32 = 24;
/// In cents; no account of the stream can run dry.
pub const OPENING: i64 = 1_000_000_000;
/// Has nothing and gets nothing, so whatever it should pay is rejected, in any order.
pub const BROKE: &str = "broke";

/// A delivery by webhook.
#[derive(Clone)]
pub struct Post {
    pub event_type: &'static str,
    pub body: String,
}

pub struct Stream {
    /// In the order of sending, duplicates included.
    pub posts: Vec<Post>,
    pub lines: Vec<String>,
    pub expected: Expected,
}

/// What the database and the published output must hold in the end.
pub struct Expected {
    /// Distinct messages of both kinds.
    pub distinct: usize,
    pub orders: Vec<String>,
    pub transfers: usize,
    pub balances: BTreeMap<String, i64>,
    /// Transfers that lack funds.
    pub rejected: usize,
    /// These, and what could not be decoded or routed.
    pub parked: usize,
}

/// A fixed sequence that looks random: the demo is the same on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        // Knuth's MMIX multiplier; its high bits are good enough to shuffle with.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }

    /// Repeats every seventh entry or so: at once, soon after, or much later; then moves all a little.
    fn disturb<T: Clone>(&mut self, distinct: Vec<T>) -> Vec<T> {
        let length = distinct.len();
        let mut placed: Vec<(usize, T)> = Vec::new();
        for (index, entry) in distinct.into_iter().enumerate() {
            let near = 10 * index + self.below(60);
            if self.below(7) == 0 {
                let later = match self.below(3) {
                    0 => near,
                    1 => near + self.below(100),
                    _ => near + self.below(10 * length),
                };
                placed.push((later, entry.clone()));
            }
            placed.push((near, entry));
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, entry)| entry).collect()
    }
}

pub fn compose(messages: usize) -> Stream {
    let mut dice = Dice(7);
    let orders: Vec<String> = (0..messages / 2).map(|i| format!("o-{i:05}")).collect();
    let mut posts: Vec<Post> = orders
        .iter()
        .enumerate()
        .map(|(i, order)| Post {
            event_type: "ORDER_PAID",
            body: json!({ "order_id": order, "customer_id": format!("c-{}", i % 97) }).to_string(),
        })
        .collect();
    let unroutable = 3;
    posts.extend(
        (0..unroutable)
            .map(|i| Post { event_type: "ORDER_CANCELLED", body: json!({ "order_id": format!("x-{i}") }).to_string() }),
    );

    let mut balances: BTreeMap<String, i64> = (0..ACCOUNTS).map(|i| (account(i as usize), OPENING)).collect();
    balances.insert(BROKE.into(), 0);
    let transfers = messages - messages / 2;
    let mut lines = Vec::with_capacity(transfers + 8);
    for i in 0..transfers {
        let from = dice.below(ACCOUNTS as usize);
        let to = (from + 1 + dice.below(ACCOUNTS as usize - 1)) % ACCOUNTS as usize;
        let amount = 1 + dice.below(5_000) as i64;
        lines.push(transfer(&format!("t-{i:05}"), &account(from), &account(to), amount));
        *balances.entry(account(from)).or_default() -= amount;
        *balances.entry(account(to)).or_default() += amount;
    }
    let rejected = 5;
    lines.extend((0..rejected).map(|i| transfer(&format!("r-{i}"), BROKE, &account(i), 100)));
    let undecodable = 4;
    lines.extend((0..undecodable).map(|i| format!("{{\"transfer_id\": \"torn-{i}\", \"from\": ")));

    let distinct = posts.len() + lines.len();
    Stream {
        posts: dice.disturb(posts),
        lines: dice.disturb(lines),
        expected: Expected {
            distinct,
            orders,
            transfers,
            balances,
            rejected,
            parked: unroutable + undecodable + rejected,
        },
    }
}

fn account(number: usize) -> String {
    format!("a-{number:02}")
}

fn transfer(id: &str, from: &str, to: &str, amount: i64) -> String {
    json!({ "transfer_id": id, "from": from, "to": to, "amount": amount }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_same_every_time_and_disturbed() {
        let (one, two) = (compose(400), compose(400));
        assert_eq!(one.lines, two.lines);
        assert!(one.lines.len() > 220 && one.posts.len() > 210, "there are duplicates");
        let mut sorted = one.lines.clone();
        sorted.sort();
        assert_ne!(sorted, one.lines);
        let mut distinct: Vec<&String> = one.lines.iter().chain(one.posts.iter().map(|p| &p.body)).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), one.expected.distinct);
    }

    #[test]
    fn transfers_keep_the_sum_of_all_money() {
        let stream = compose(1_000);
        assert_eq!(stream.expected.balances.values().sum::<i64>(), i64::from(ACCOUNTS) * OPENING);
    }
}
