//! Checks across sections: references, and values that must fit each other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::Declared;
use super::mistake::Mistake;
use super::model::{Broker, Config, DatabaseKind, Intake, Route};
use super::read::{At, Reading, listed, nearest};
use super::units::duration_text;

pub fn check(reading: &Reading<'_>, config: &Config, declared: &Declared, routes: &BTreeMap<String, Range<usize>>) {
    for (name, route) in &config.routes {
        let at = routes.get(name).cloned().unwrap_or_default();
        known(reading, "broker", &route.broker, &declared.brokers);
        known(reading, "database", &route.database, &declared.databases);
        for rule in &route.rules {
            known(reading, "plugin", &rule.plugin, &declared.plugins);
        }
        intake_fits(reading, name, &at, route, config);
        lanes_fit(reading, name, &at, route, config);
        horizon(reading, name, &at, route);
        unreachable_rules(reading, name, route);
    }
    groups(reading, config);
    intakes(reading, config);
    emits(reading, config, declared);
    unused(reading, config, declared, routes);
    if routes.is_empty() {
        let help = "add a section such as [route.orders] with broker, queue, database and plugins";
        let end = reading.source.text.trim_end().len();
        let start = reading.source.text[..end].rfind('\n').map_or(0, |at| at + 1);
        reading.note(Mistake::error(start..end, "there is no route, so the host would do nothing").help(help));
    }
}

fn known(reading: &Reading<'_>, what: &str, name: &At<String>, declared: &BTreeMap<String, Range<usize>>) {
    if declared.contains_key(&name.value) {
        return;
    }
    let mut mistake = Mistake::error(name.span.clone(), format!("there is no [{what}.{}]", name.value));
    if let Some(near) = nearest(&name.value, declared.keys().map(String::as_str)) {
        mistake = mistake.label(format!("did you mean {near:?}?"));
    }
    reading.note(if declared.is_empty() {
        mistake.help(format!("no {what} is declared"))
    } else {
        mistake.help(format!("declared: {}", listed(declared.keys().map(String::as_str))))
    });
}

fn intake_fits(reading: &Reading<'_>, name: &str, at: &Range<usize>, route: &Route, config: &Config) {
    let Some(broker) = config.brokers.get(&route.broker.value) else { return };
    let (kind, wants) = match broker {
        Broker::Rabbitmq(_) => ("rabbitmq", "queue"),
        Broker::Webhook(_) => ("webhook", "path"),
        Broker::File { .. } => ("file", "file"),
        Broker::Log { .. } => {
            let message = format!("route.{name}: broker {:?} gives no messages", route.broker.value);
            reading.note(Mistake::error(route.broker.span.clone(), message).label("a log can only be emitted to"));
            return;
        }
    };
    let has = match &route.intake {
        Intake::Queue(_) => "queue",
        Intake::Path(_) => "path",
        Intake::File { .. } => "file",
    };
    if has != wants {
        let message = format!("route.{name} needs `{wants}`, since broker {:?} is of kind {kind}", route.broker.value);
        reading.note(
            Mistake::error(at.clone(), message)
                .label(format!("this route has `{has}`"))
                .other(route.broker.span.clone(), format!("of kind {kind}")),
        );
    }
    if let (Broker::Webhook(webhook), "path") = (broker, has)
        && webhook.listen.is_none()
    {
        let message = format!("broker {:?} listens nowhere", route.broker.value);
        reading.note(
            Mistake::error(route.broker.span.clone(), message)
                .label("needed by this route")
                .help(format!("add to [broker.{}] a line such as: listen = \"127.0.0.1:8080\"", route.broker.value)),
        );
    }
}

fn lanes_fit(reading: &Reading<'_>, name: &str, at: &Range<usize>, route: &Route, config: &Config) {
    let Some(database) = config.databases.get(&route.database.value) else { return };
    if matches!(database.kind, DatabaseKind::Sqlite) && route.lanes > 1 {
        reading.note(
            Mistake::warning(at.clone(), format!("route.{name} has {} lanes on SQLite", route.lanes))
                .label("one lane does as well")
                .help("SQLite has one writer at a time, so the lanes wait for each other"),
        );
    }
}

/// D05: a message must not come back after its inbox row is gone.
fn horizon(reading: &Reading<'_>, name: &str, at: &Range<usize>, route: &Route) {
    let mut horizon = Duration::ZERO;
    let mut pause = route.retry.initial;
    for _ in 1..route.retry.attempts {
        horizon = horizon.saturating_add(pause);
        pause = pause.saturating_mul(2).min(route.retry.max);
    }
    if route.dedup_ttl < horizon {
        reading.note(
            Mistake::error(
                at.clone(),
                format!(
                    "route.{name}: dedup.ttl of {} is shorter than its retries, which take up to {}",
                    duration_text(route.dedup_ttl),
                    duration_text(Duration::from_secs(horizon.as_secs()))
                ),
            )
            .label("in this route")
            .help("a late attempt would find no record of the message and apply it a second time"),
        );
    }
}

fn unreachable_rules(reading: &Reading<'_>, name: &str, route: &Route) {
    let Some(first) = route.rules.iter().position(|rule| rule.when.is_empty()) else { return };
    let catch = &route.rules[first];
    for rule in &route.rules[first + 1..] {
        reading.note(
            Mistake::warning(rule.plugin.span.clone(), format!("route.{name}: this rule is never reached"))
                .other(catch.plugin.span.clone(), "this one has no condition and takes every message"),
        );
    }
}

/// Routes that share a group share their dedup keys: a message that one of them handled is a duplicate for the
/// other.
fn groups(reading: &Reading<'_>, config: &Config) {
    let mut seen: BTreeMap<(&str, &str), (&str, &At<String>)> = BTreeMap::new();
    for (name, route) in &config.routes {
        let scope = (route.database.value.as_str(), route.group.value.as_str());
        if let Some((first, other)) = seen.insert(scope, (name, &route.group)) {
            reading.note(
                Mistake::error(
                    route.group.span.clone(),
                    format!("routes {first:?} and {name:?} have the same group {:?}", route.group.value),
                )
                .other(other.span.clone(), "also here")
                .help("a message handled by one would be a duplicate for the other; give each its own group"),
            );
        }
    }
}

/// Two routes on one webhook path, or on one file, would take each other's messages.
fn intakes(reading: &Reading<'_>, config: &Config) {
    let mut seen: Vec<(&str, &Route)> = Vec::new();
    for (name, route) in &config.routes {
        let shared = match route.intake {
            // Two consumers of one queue share its messages, which is seldom meant but well defined.
            Intake::Queue(_) => None,
            Intake::Path(_) | Intake::File { .. } => {
                seen.iter().find(|(_, o)| o.intake == route.intake && o.broker.value == route.broker.value)
            }
        };
        if let Some((first, other)) = shared {
            let message = format!("routes {first:?} and {name:?} take from the same place");
            reading
                .note(Mistake::error(route.broker.span.clone(), message).other(other.broker.span.clone(), "also here"));
        }
        seen.push((name, route));
    }
}

fn emits(reading: &Reading<'_>, config: &Config, declared: &Declared) {
    for (name, plugin) in &config.plugins {
        for pattern in &plugin.emits {
            // Later checks of the grant itself are the resolver's.
            let Some((broker, _)) = pattern.split_once(':') else {
                let message = format!("plugin.{name}: grants.emit {:?} names no broker", pattern.value);
                reading.note(
                    Mistake::error(pattern.span.clone(), message)
                        .label("write it as \"broker:destination\", where `*` stands for anything"),
                );
                continue;
            };
            if broker.contains('*') {
                continue;
            }
            let at = At { value: broker.to_owned(), span: pattern.span.clone() };
            known(reading, "broker", &at, &declared.brokers);
            if let Some(Broker::Webhook(webhook)) = config.brokers.get(broker)
                && webhook.url.is_none()
            {
                let message = format!("plugin.{name} may emit to broker {broker:?}, which has no url");
                reading.note(
                    Mistake::error(pattern.span.clone(), message)
                        .help(format!("add to [broker.{broker}] a line such as: url = \"https://example.com/hooks\"")),
                );
            }
        }
    }
}

fn unused(reading: &Reading<'_>, config: &Config, declared: &Declared, routes: &BTreeMap<String, Range<usize>>) {
    // A route with a mistake, or with a misspelled name, may be the one that uses it.
    let mut used = config.routes.values().flat_map(|route| &route.rules).map(|rule| &rule.plugin.value);
    if config.routes.len() < routes.len() || !used.all(|name| declared.plugins.contains_key(name)) {
        return;
    }
    for (name, at) in &declared.plugins {
        let used = config.routes.values().any(|r| r.rules.iter().any(|rule| rule.plugin.value == *name));
        if !used {
            reading.note(
                Mistake::warning(at.clone(), format!("plugin.{name} is used by no route")).label("it is not loaded"),
            );
        }
    }
}
