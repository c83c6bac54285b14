//! `[plugin.*]` and `[route.*]`.

use std::ops::Range;
use std::time::Duration;

use ackwright_core::access::Grants;
use ackwright_core::route::{Backoff, Condition, Unmatched};
use toml_span::value::ValueInner;

use super::mistake::Mistake;
use super::model::{Intake, Limits, Plugin, Route, Rule};
use super::read::{At, Fields, Item, Reading};

const KEPT: Duration = Duration::from_secs(14 * 86_400);

pub fn plugin(_name: &str, mut fields: Fields<'_, '_>) -> Option<Plugin> {
    let reading = fields.reading();
    let path = fields.required("path", "\"plugins/coupon.wasm\"", Reading::path);
    let mut grants = Grants::default();
    let mut emits = Vec::new();
    if let Some(mut sides) = fields.optional("grants", Reading::fields) {
        let mut side = |key| sides.optional(key, Reading::strings).unwrap_or_default();
        let text = |list: &[At<String>]| list.iter().map(|at| at.value.clone()).collect();
        grants.read = text(&side("read"));
        grants.write = text(&side("write"));
        emits = side("emit");
        grants.emit = text(&emits);
        sides.finish();
    }
    let limits = limits(fields.optional("limits", Reading::fields));
    let settings = fields.take("settings").map(|item| settings(reading, item));
    fields.finish();
    Some(Plugin {
        path: path?.value,
        grants,
        emits,
        limits,
        settings: settings.unwrap_or(Some(serde_json::Map::new()))?,
    })
}

fn settings(reading: &Reading<'_>, item: Item<'_>) -> Option<serde_json::Map<String, serde_json::Value>> {
    if !matches!(item.value, ValueInner::Table(_)) {
        return reading.wanted(&item, "a table");
    }
    match reading.json(item)? {
        serde_json::Value::Object(map) => Some(map),
        // A table becomes an object.
        _ => None,
    }
}

fn limits(fields: Option<Fields<'_, '_>>) -> Limits {
    let own = ackwright_wasm::Limits::default();
    let mut limits = Limits {
        memory: own.memory as u64,
        time: own.time,
        wall: own.wall,
        rows: own.rows,
        effects: own.effects.effects,
        emits: own.effects.emits,
        bytes: own.effects.bytes as u64,
    };
    let Some(mut fields) = fields else { return limits };
    let reading = fields.reading();
    if let Some(memory) = fields.optional("memory", Reading::size) {
        if !(1 << 20..=4 << 30).contains(&memory.value) {
            let message = format!("{}.memory is out of range", fields.name);
            reading.note(Mistake::error(memory.span, message).label("a size from 1MiB to 4GiB"));
        } else {
            limits.memory = memory.value;
        }
    }
    let mut time = |key, to: &mut Duration| {
        let Some(time) = fields.optional(key, Reading::duration) else { return };
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(60));
        if (least..=most).contains(&time.value) {
            *to = time.value;
        } else {
            reading.note(
                Mistake::error(time.span, format!("{}.{key} is out of range", fields.name))
                    .label("a duration from 10ms to 60s")
                    .help("a transaction stays open while the handler runs, so it has to end soon"),
            );
        }
    };
    time("time", &mut limits.time);
    time("wall", &mut limits.wall);
    let mut count = |key, most: i64, to: &mut usize| {
        if let Some(count) = fields.optional(key, |r, item| r.whole(item, 1..=most)) {
            *to = count.value;
        }
    };
    count("rows", 1_000_000, &mut limits.rows);
    count("effects", 1_000_000, &mut limits.effects);
    count("emits", 100_000, &mut limits.emits);
    if let Some(bytes) = fields.optional("bytes", Reading::size) {
        limits.bytes = bytes.value;
    }
    fields.finish();
    limits
}

pub fn route(name: &str, mut fields: Fields<'_, '_>) -> Option<Route> {
    let reading = fields.reading();
    let broker = fields.required("broker", "\"events\"", Reading::name);
    let queue = fields.optional("queue", Reading::name);
    let path = fields.optional("path", Reading::name);
    let file = fields.optional("file", Reading::path);
    let follow = fields.optional("follow", Reading::located_boolean);
    let group = fields.optional("group", Reading::name);
    let database = fields.required("database", "\"main\"", Reading::name);
    let lanes = fields.optional("lanes", |r, item| r.whole(item, 1..=64)).map_or(1, |at| at.value);
    let batch = fields.optional("batch", |r, item| r.whole(item, 1..=4096)).map_or(256, |at| at.value);
    let batch_bytes = fields.optional("batch_bytes", Reading::size).map_or(8 << 20, |at| at.value);
    let prefetch = fields.optional("prefetch", |r, item| r.whole(item, 1..=65_535));
    let ttl = dedup(name, fields.optional("dedup", Reading::fields));
    let retry = retry(fields.optional("retry", Reading::fields));
    let rules = fields.required("plugins", "[{ use = \"coupon\" }]", |r, item| {
        let (key, full) = (item.key.clone(), item.name.clone());
        let rules = r.list(item, "a list of rules", |item| rule(r, item))?;
        if rules.is_empty() {
            r.note(Mistake::error(key, format!("{full} is empty")).label("no message would ever match"));
            return None;
        }
        Some(rules)
    });
    let choices = [("park", Unmatched::Park), ("skip", Unmatched::Skip)];
    let unmatched = fields.optional("unmatched", |r, item| r.choice(item, &choices));
    let at = fields.key.clone();
    fields.finish();

    pace(reading, name, lanes, batch, prefetch.as_ref(), &at);
    let intake = intake(reading, name, &at, queue, path, file, follow);
    Some(Route {
        broker: broker?,
        intake: intake?,
        group: group.unwrap_or(At { value: name.to_owned(), span: at }),
        database: database?,
        lanes,
        batch,
        batch_bytes,
        prefetch: prefetch.map_or((2 * batch * lanes).min(65_535), |at| at.value),
        dedup_ttl: ttl,
        retry,
        rules: rules?,
        unmatched: unmatched.map_or(Unmatched::Park, |at| at.value),
    })
}

fn pace(
    reading: &Reading<'_>,
    name: &str,
    lanes: usize,
    batch: usize,
    prefetch: Option<&At<usize>>,
    at: &Range<usize>,
) {
    let Some(prefetch) = prefetch else { return };
    if prefetch.value < batch {
        reading.note(
            Mistake::error(prefetch.span.clone(), format!("route.{name}.prefetch is smaller than its batch"))
                .label(format!("at least the batch of {batch}"))
                .other(at.clone(), "in this route")
                .help("a batch is made of messages that were prefetched, so it could never be full"),
        );
    } else if prefetch.value < 2 * batch {
        reading.note(
            Mistake::warning(
                prefetch.span.clone(),
                format!("route.{name}.prefetch is smaller than twice its batch of {batch}"),
            )
            .label(format!("{} keeps the {} busy", 2 * batch * lanes, if lanes == 1 { "lane" } else { "lanes" }))
            .help("the next batch gathers while the last one commits"),
        );
    }
}

/// Which of `queue`, `path` and `file` fits the broker is checked where brokers are known.
fn intake(
    reading: &Reading<'_>,
    name: &str,
    at: &Range<usize>,
    queue: Option<At<String>>,
    path: Option<At<String>>,
    file: Option<At<std::path::PathBuf>>,
    follow: Option<At<bool>>,
) -> Option<Intake> {
    if let (Some(follow), None) = (&follow, &file) {
        reading.note(
            Mistake::error(follow.span.clone(), format!("route.{name}.follow is for files only"))
                .help("it goes with a line such as: file = \"orders.ndjson\""),
        );
    }
    let given = [queue.as_ref().map(|a| &a.span), path.as_ref().map(|a| &a.span), file.as_ref().map(|a| &a.span)];
    let given: Vec<Range<usize>> = given.into_iter().flatten().cloned().collect();
    if let [first, second, ..] = &given[..] {
        reading.note(
            Mistake::error(second.clone(), format!("route.{name} takes messages from two places"))
                .label("this one")
                .other(first.clone(), "and this one")
                .help("give one of queue, path and file; another place needs a route of its own"),
        );
        return None;
    }
    if let Some(queue) = queue {
        return Some(Intake::Queue(queue.value));
    }
    if let Some(path) = path {
        if !path.starts_with('/') {
            let message = format!("route.{name}.path is no path of a request");
            reading.note(Mistake::error(path.span, message).label("it must begin with `/`"));
            return None;
        }
        return Some(Intake::Path(path.value));
    }
    if let Some(file) = file {
        return Some(Intake::File { path: file.value, follow: follow.is_none_or(|at| at.value) });
    }
    reading.note(
        Mistake::error(at.clone(), format!("route.{name} does not say where its messages come from"))
            .help("add queue (rabbitmq), path (webhook) or file (file)"),
    );
    None
}

fn dedup(name: &str, fields: Option<Fields<'_, '_>>) -> Duration {
    let Some(mut fields) = fields else { return KEPT };
    let reading = fields.reading();
    if let Some(mode) = fields.optional("mode", Reading::name)
        && mode.value != "inbox"
    {
        let message = format!("route.{name}.dedup.mode cannot be {:?}", mode.value);
        let mistake = Mistake::error(mode.span, message).label("\"inbox\" is the only mode of this version");
        reading.note(match mode.value.as_str() {
            "natural" | "offset" | "cache" => mistake.help("inbox protects every kind of effect"),
            _ => mistake,
        });
    }
    let ttl = fields.optional("ttl", Reading::duration);
    fields.finish();
    match ttl {
        Some(ttl) if ttl.value.is_zero() => {
            let message = format!("route.{name}.dedup.ttl is zero");
            reading.note(Mistake::error(ttl.span, message).label("every duplicate would be applied again"));
            KEPT
        }
        Some(ttl) => ttl.value,
        None => KEPT,
    }
}

fn retry(fields: Option<Fields<'_, '_>>) -> Backoff {
    let mut retry = Backoff { attempts: 8, initial: Duration::from_secs(1), max: Duration::from_secs(600) };
    let Some(mut fields) = fields else { return retry };
    let reading = fields.reading();
    if let Some(attempts) = fields.optional("attempts", |r, item| r.whole(item, 1..=1_000)) {
        retry.attempts = attempts.value as i32;
    }
    let initial = fields.optional("initial", Reading::duration);
    let max = fields.optional("max", Reading::duration);
    let name = fields.name.clone();
    fields.finish();
    if let Some(initial) = &initial {
        retry.initial = initial.value;
        if initial.value.is_zero() {
            reading.note(
                Mistake::error(initial.span.clone(), format!("{name}.initial is zero"))
                    .label("attempts would follow each other without a pause"),
            );
        }
    }
    if let Some(max) = &max {
        retry.max = max.value;
    }
    if retry.initial > retry.max {
        let place = initial.or(max).map(|at| at.span);
        reading.note(
            Mistake::error(place.unwrap_or_default(), format!("{name}.initial is longer than {name}.max")).label(
                format!(
                    "initial is {}, max is {}",
                    super::units::duration_text(retry.initial),
                    super::units::duration_text(retry.max)
                ),
            ),
        );
    }
    retry
}

fn rule(reading: &Reading<'_>, item: Item<'_>) -> Option<Rule> {
    let mut fields = reading.fields(item)?;
    let when = match fields.take("when") {
        Some(item) => when(reading, item),
        None => Some(Vec::new()),
    };
    let plugin = fields.required("use", "\"coupon\"", Reading::name);
    fields.finish();
    Some(Rule { when: when?, plugin: plugin? })
}

fn when(reading: &Reading<'_>, item: Item<'_>) -> Option<Vec<Condition>> {
    let mut fields = reading.fields(item)?;
    let mut all = Some(Vec::new());
    let mut push = |condition: Option<Condition>| match (condition, &mut all) {
        (Some(condition), Some(all)) => all.push(condition),
        (Some(_), None) => {}
        (None, _) => all = None,
    };
    if let Some(headers) = fields.optional("header", Reading::fields) {
        for (name, item) in headers.entries() {
            push(reading.string(item).map(|pattern| Condition::Header { name, pattern }));
        }
    }
    let mut condition = |key, condition: fn(String) -> Condition| {
        if let Some(item) = fields.take(key) {
            push(reading.string(item).map(condition));
        }
    };
    condition("subject", Condition::Subject);
    condition("source", Condition::Source);
    condition("content_type", Condition::ContentType);
    fields.finish();
    all
}
