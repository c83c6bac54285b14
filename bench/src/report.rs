//! The report: medians of the rounds, ratios, and the targets that they meet or miss.

use std::collections::BTreeMap;

use anyhow::Result;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::scenario::{Latency, Throughput};

#[derive(Default)]
pub struct Report {
    order: Vec<String>,
    throughput: BTreeMap<String, Vec<Throughput>>,
    latency: BTreeMap<(usize, String), Vec<Latency>>,
    sqlite: BTreeMap<String, Vec<f64>>,
}

impl Report {
    pub fn throughput(&mut self, name: &str, run: Throughput) {
        if !self.order.iter().any(|known| known == name) {
            self.order.push(name.to_owned());
        }
        self.throughput.entry(name.to_owned()).or_default().push(run);
    }

    pub fn latency(&mut self, name: &str, rate: usize, run: Latency) {
        self.latency.entry((rate, name.to_owned())).or_default().push(run);
    }

    pub fn sqlite(&mut self, name: &str, rate: f64) {
        self.sqlite.entry(name.to_owned()).or_default().push(rate);
    }

    fn rate(&self, name: &str) -> Option<f64> {
        self.of(name, |run| run.rate)
    }

    fn of(&self, name: &str, figure: impl Fn(&Throughput) -> f64) -> Option<f64> {
        self.throughput.get(name).map(|runs| median(runs.iter().map(figure)))
    }

    fn latency_of(&self, rate: usize, name: &str, figure: impl Fn(&Latency) -> f64) -> Option<f64> {
        self.latency.get(&(rate, name.to_owned())).map(|runs| median(runs.iter().map(figure)))
    }

    fn sqlite_of(&self, name: &str) -> Option<f64> {
        self.sqlite.get(name).map(|rates| median(rates.iter().copied()))
    }

    /// What the project promises, as ratios of medians of this run.
    fn targets(&self) -> Vec<Target> {
        let best_of = |a: &str, b: &str| Some(self.rate(a)?.max(self.rate(b).unwrap_or(0.0)));
        let usual = best_of("usual, 8 workers", "usual, 32 workers");
        let best = best_of("one statement, 8 workers", "one statement, 32 workers");
        let drain = self.rate("drain, no database");
        let ackwright = self.rate("ackwright");
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        let p50 = |name| self.latency_of(500, name, |l| l.p50);
        let p99 = |name| self.latency_of(2000, name, |l| l.p99);
        let at_least = |name, value: Option<f64>, bound| value.map(|value| Target { name, value, bound, least: true });
        let at_most = |name, value: Option<f64>, bound| value.map(|value| Target { name, value, bound, least: false });
        let memory = self.of("ackwright", |run| run.memory as f64 / 1e6);
        let deadlocks =
            self.throughput.get("ackwright, 4 lanes").map(|runs| runs.iter().map(|r| r.deadlocks).sum::<i64>() as f64);
        [
            at_least("rate / usual", ratio(ackwright, usual), 14.0),
            at_least("rate / one statement", ratio(ackwright, best), 8.0),
            at_least("rate / drain", ratio(ackwright, drain), 0.35),
            at_least("rate with relay / usual", ratio(self.rate("ackwright, relay on"), usual), 10.0),
            at_most("p50 at 500/s / usual", ratio(p50("ackwright"), p50("usual, 8 workers")), 1.3),
            at_most("p99 at 2000/s / usual", ratio(p99("ackwright"), p99("usual, 8 workers")), 0.6),
            at_least(
                "rate with 10 % duplicates / clean",
                ratio(self.rate("ackwright, 10 % duplicates"), ackwright),
                0.8,
            ),
            at_least("rate with 1 % errors / clean", ratio(self.rate("ackwright, 1 % handler errors"), ackwright), 0.9),
            at_most("deadlocks with 4 lanes", deadlocks, 0.0),
            at_least(
                "SQLite rate / usual on SQLite",
                ratio(self.sqlite_of("ackwright, sqlite"), self.sqlite_of("usual, sqlite")),
                8.0,
            ),
            at_most("resident memory, MB", memory, 200.0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string_pretty(&self.json())?);
            return Ok(());
        }
        let mut table = plain(["consumer", "messages/s", "min-max", "µs/message", "host", "broker", "database", "MB"]);
        for name in &self.order {
            let runs = &self.throughput[name];
            let micros = |figure: fn(&Throughput) -> f64| format!("{:.1}", 1e6 * median(runs.iter().map(figure)));
            let rates = runs.iter().map(|run| run.rate);
            table.add_row([
                name.clone(),
                format!("{:.0}", median(rates.clone())),
                format!("{:.0}-{:.0}", rates.clone().fold(f64::MAX, f64::min), rates.fold(0.0, f64::max)),
                micros(|run| run.cpu.total()),
                micros(|run| run.cpu.host),
                micros(|run| run.cpu.broker),
                micros(|run| run.cpu.database),
                format!("{:.0}", median(runs.iter().map(|run| run.memory as f64 / 1e6))),
            ]);
        }
        println!("{table}\n");
        let mut table = plain(["pace", "consumer", "p50 ms", "p99 ms"]);
        for ((rate, name), runs) in &self.latency {
            let millis = |figure: fn(&Latency) -> f64| format!("{:.2}", 1e3 * median(runs.iter().map(figure)));
            table.add_row([format!("{rate}/s"), name.clone(), millis(|l| l.p50), millis(|l| l.p99)]);
        }
        for (name, rates) in &self.sqlite {
            table.add_row([
                "full".into(),
                format!("{name}: {:.0} messages/s", median(rates.iter().copied())),
                String::new(),
                String::new(),
            ]);
        }
        println!("{table}\n");
        let mut table = plain(["target", "measured", "bound", "met"]);
        for target in self.targets() {
            let sign = if target.least { "≥" } else { "≤" };
            let met = if target.met() { "yes" } else { "NO" };
            table.add_row([
                target.name.to_owned(),
                format!("{:.2}", target.value),
                format!("{sign} {}", target.bound),
                met.to_owned(),
            ]);
        }
        println!("{table}");
        Ok(())
    }

    fn json(&self) -> Value {
        let throughput: Vec<Value> = self
            .order
            .iter()
            .map(|name| {
                let runs = &self.throughput[name];
                let figure = |figure: fn(&Throughput) -> f64| median(runs.iter().map(figure));
                json!({
                    "consumer": name,
                    "rates": runs.iter().map(|r| r.rate).collect::<Vec<_>>(),
                    "rate": figure(|r| r.rate),
                    "host_us": 1e6 * figure(|r| r.cpu.host),
                    "broker_us": 1e6 * figure(|r| r.cpu.broker),
                    "database_us": 1e6 * figure(|r| r.cpu.database),
                    "memory_bytes": figure(|r| r.memory as f64),
                })
            })
            .collect();
        let latency: Vec<Value> = self
            .latency
            .iter()
            .map(|((rate, name), runs)| {
                let figure = |figure: fn(&Latency) -> f64| 1e3 * median(runs.iter().map(figure));
                json!({ "pace": rate, "consumer": name, "p50_ms": figure(|l| l.p50), "p99_ms": figure(|l| l.p99) })
            })
            .collect();
        let sqlite: BTreeMap<_, _> =
            self.sqlite.iter().map(|(name, rates)| (name, median(rates.iter().copied()))).collect();
        let targets: Vec<Value> = self
            .targets()
            .iter()
            .map(|t| json!({ "target": t.name, "measured": t.value, "bound": t.bound, "at_least": t.least, "met": t.met() }))
            .collect();
        json!({ "throughput": throughput, "latency": latency, "sqlite": sqlite, "targets": targets })
    }
}

struct Target {
    name: &'static str,
    value: f64,
    bound: f64,
    least: bool,
}

impl Target {
    fn met(&self) -> bool {
        if self.least { self.value >= self.bound } else { self.value <= self.bound }
    }
}

fn plain<const N: usize>(heads: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heads);
    table
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}
