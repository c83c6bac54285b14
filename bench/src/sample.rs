//! Samples: CPU time and memory of the processes that this benchmark started, by what they are.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

/// CPU time in seconds since a process began, summed over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    pub host: f64,
    pub broker: f64,
    pub database: f64,
}

impl Cpu {
    pub fn total(self) -> f64 {
        self.host + self.broker + self.database
    }

    fn between(self, later: Cpu, part: f64) -> Cpu {
        let mix = |a: f64, b: f64| a + (b - a) * part;
        Cpu {
            host: mix(self.host, later.host),
            broker: mix(self.broker, later.broker),
            database: mix(self.database, later.database),
        }
    }

    pub fn since(self, earlier: Cpu) -> Cpu {
        Cpu {
            host: self.host - earlier.host,
            broker: self.broker - earlier.broker,
            database: self.database - earlier.database,
        }
    }

    pub fn per(self, messages: f64) -> Cpu {
        Cpu { host: self.host / messages, broker: self.broker / messages, database: self.database / messages }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Seconds since the Unix epoch, as the database stamps its commits.
    at: f64,
    cpu: Cpu,
}

/// Samples every few milliseconds until it is dropped.
pub struct Sampler {
    samples: Arc<Mutex<Vec<Sample>>>,
    task: JoinHandle<()>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sampler {
    /// `host` is the process that consumes.
    pub fn start(host: u32) -> Self {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&samples);
        let task = tokio::spawn(async move {
            loop {
                let sample = Sample { at: now(), cpu: cpu(host) };
                kept.lock().unwrap_or_else(|e| e.into_inner()).push(sample);
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
        });
        Sampler { samples, task }
    }

    /// CPU time at a moment, between the samples around it.
    pub fn at(&self, moment: f64) -> Option<Cpu> {
        let samples = self.samples.lock().unwrap_or_else(|e| e.into_inner());
        let later = samples.iter().position(|s| s.at >= moment)?;
        let (a, b) = (samples[later.checked_sub(1)?], samples[later]);
        Some(a.cpu.between(b.cpu, (moment - a.at) / (b.at - a.at)))
    }
}

#[expect(clippy::disallowed_methods, reason = "samples are matched with the database's commit times")]
pub fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

struct Process {
    parent: u32,
    name: String,
    seconds: f64,
}

/// Processes of this benchmark: its descendants, so that servers of the machine do not count.
fn cpu(host: u32) -> Cpu {
    let processes = processes();
    let ours = std::process::id();
    let mut cpu = Cpu::default();
    for (id, process) in &processes {
        let mut at = *id;
        while at != ours && at > 1 {
            at = processes.get(&at).map_or(0, |p| p.parent);
        }
        if at != ours || *id == ours {
            continue;
        }
        if *id == host {
            cpu.host += process.seconds;
        } else if process.name == "postgres" {
            cpu.database += process.seconds;
        } else if process.name.starts_with("beam") {
            cpu.broker += process.seconds;
        }
    }
    cpu
}

fn processes() -> HashMap<u32, Process> {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
    let Ok(folder) = fs::read_dir("/proc") else { return HashMap::new() };
    folder
        .filter_map(|entry| {
            let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // The name is in parentheses and may hold anything.
            let (head, tail) = (stat.find('(')?, stat.rfind(')')?);
            let fields: Vec<&str> = stat[tail + 2..].split(' ').collect();
            let clock = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok());
            let seconds = (clock(11)? + clock(12)?) / ticks;
            Some((id, Process { parent: fields.get(1)?.parse().ok()?, name: stat[head + 1..tail].to_owned(), seconds }))
        })
        .collect()
}

/// Most memory that a process ever held, in bytes.
pub fn peak_memory(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}
