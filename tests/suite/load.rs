//! A stream of deliveries and, computed apart from the host, what must come of it.

use std::collections::{BTreeMap, BTreeSet};

/// Nobody pays into it, so every transfer from it is rejected, whatever the order of arrival.
const POOR: &str = "poor";
/// No rich account can run dry.
const RICH: i64 = 1_000_000;
const ACCOUNTS: u64 = 7;

/// How much of what.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub orders: u64,
    pub transfers: u64,
    /// Messages that no plugin can read.
    pub poison: u64,
    /// Messages whose handler reads and writes inside the transaction.
    pub readers: u64,
    /// In percent of the messages; half of the repeats follow their message at once, half come any time later.
    pub repeats: u64,
}

impl Default for Size {
    fn default() -> Self {
        Size { orders: 60, transfers: 60, poison: 4, readers: 0, repeats: 30 }
    }
}

#[derive(Clone, Debug)]
pub struct Letter {
    pub queue: &'static str,
    pub body: Vec<u8>,
}

/// Letters in the order in which they are sent, and what is true after all of them.
#[derive(Debug, Default)]
pub struct Load {
    pub letters: Vec<Letter>,
    pub orders: BTreeSet<String>,
    pub transfers: BTreeSet<String>,
    pub readers: BTreeSet<String>,
    pub balances: BTreeMap<String, i64>,
    /// Bodies of the messages that are parked, in hexadecimal.
    pub parked: BTreeSet<String>,
}

impl Load {
    pub fn generate(seed: u64, size: Size) -> Self {
        let mut random = Random(seed);
        let mut load = Load::default();
        load.balances.extend((0..ACCOUNTS).map(|n| (account(n), RICH)));
        load.balances.insert(POOR.into(), 0);
        let mut kinds: Vec<_> = std::iter::repeat_n(Message::Order, size.orders as usize)
            .chain(std::iter::repeat_n(Message::Transfer, size.transfers as usize))
            .chain(std::iter::repeat_n(Message::Poison, size.poison as usize))
            .chain(std::iter::repeat_n(Message::Reader, size.readers as usize))
            .collect();
        for at in (1..kinds.len()).rev() {
            kinds.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut later = Vec::new();
        for (number, kind) in kinds.into_iter().enumerate() {
            let letter = match kind {
                Message::Order => load.order(&format!("order-{seed}-{number}"), &format!("customer-{}", number % 9)),
                Message::Transfer => load.transfer(&mut random, &format!("transfer-{seed}-{number}")),
                Message::Reader => load.reader(&format!("reader-{seed}-{number}")),
                Message::Poison => load.unreadable(format!("{{\"broken\": {number}").into_bytes()),
            };
            load.letters.push(letter.clone());
            if random.below(100) < size.repeats {
                if random.below(2) == 0 { load.letters.push(letter) } else { later.push(letter) }
            }
        }
        for letter in later {
            let original = load.letters.iter().position(|l| l.body == letter.body).unwrap_or_default();
            let room = (load.letters.len() - original) as u64;
            load.letters.insert(original + 1 + random.below(room) as usize, letter);
        }
        load
    }

    /// A letter that earns one coupon, and the expectation of it.
    pub fn order(&mut self, order: &str, customer: &str) -> Letter {
        self.orders.insert(order.to_owned());
        let body = serde_json::json!({ "order_id": order, "customer_id": customer });
        Letter { queue: "orders", body: body.to_string().into_bytes() }
    }

    /// A letter whose handler inserts a row, reads it and counts it up: running it twice leaves a trace.
    fn reader(&mut self, id: &str) -> Letter {
        self.readers.insert(id.to_owned());
        let steps = serde_json::json!([
            { "insert": { "table": "probe_rows", "row": { "id": id, "n": 1 } } },
            { "get": { "table": "probe_rows", "key": { "id": id } } },
            { "execute": { "sql": format!("UPDATE probe_rows SET n = n + 1 WHERE id = '{id}'"), "rows": 1 } },
        ]);
        crate::probe::script(id, steps)
    }

    /// A letter that no plugin can read.
    pub fn unreadable(&mut self, body: Vec<u8>) -> Letter {
        self.parked.insert(hex(&body));
        Letter { queue: "orders", body }
    }

    fn transfer(&mut self, random: &mut Random, id: &str) -> Letter {
        let amount = 1 + random.below(100) as i64;
        let to = account(random.below(ACCOUNTS));
        let from = match random.below(10) {
            0 => POOR.to_owned(),
            step => account((to[8..].parse::<u64>().unwrap_or_default() + 1 + step % (ACCOUNTS - 1)) % ACCOUNTS),
        };
        let body = serde_json::json!({ "transfer_id": id, "from": from, "to": to, "amount": amount });
        let body = body.to_string().into_bytes();
        if from == POOR {
            self.parked.insert(hex(&body));
        } else {
            self.transfers.insert(id.to_owned());
            *self.balances.entry(from).or_default() -= amount;
            *self.balances.entry(to).or_default() += amount;
        }
        Letter { queue: "transfers", body }
    }

    /// Statements that open the accounts.
    pub fn accounts() -> Vec<String> {
        let rich = (0..ACCOUNTS).map(|n| (account(n), RICH));
        let all = rich.chain([(POOR.to_owned(), 0)]);
        all.map(|(id, balance)| format!("INSERT INTO accounts (id, balance) VALUES ('{id}', {balance})")).collect()
    }
}

#[derive(Clone, Copy)]
enum Message {
    Order,
    Transfer,
    Poison,
    Reader,
}

fn account(number: u64) -> String {
    format!("account-{number}")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SplitMix64: the same stream for the same seed, on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[test]
fn the_generator_repeats_itself_and_moves_no_money_in_or_out() {
    let size = Size { orders: 200, transfers: 200, poison: 10, readers: 0, repeats: 40 };
    let (load, again) = (Load::generate(7, size), Load::generate(7, size));
    assert!(load.letters.iter().map(|l| &l.body).eq(again.letters.iter().map(|l| &l.body)));
    assert_eq!(load.balances.values().sum::<i64>(), ACCOUNTS as i64 * RICH);
    assert_eq!(load.orders.len(), 200);
    assert_eq!(load.transfers.len() + load.parked.len(), 210);
    assert!(load.parked.len() > 10, "some transfers are rejected");
    let distinct: BTreeSet<_> = load.letters.iter().map(|l| &l.body).collect();
    assert_eq!(distinct.len(), 410);
    assert!((500..650).contains(&load.letters.len()), "{} letters with repeats", load.letters.len());
}
