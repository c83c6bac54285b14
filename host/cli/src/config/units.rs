//! Durations and sizes, written as text with their unit.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// `30s`, `250ms`, `1h30m`. The error completes the sentence "this is no duration: ...".
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut total = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("it is empty; write a number with a unit, such as \"30s\"".into());
    }
    while !rest.is_empty() {
        let (amount, after) = amount(rest, "30s", &DURATIONS)?;
        total = total.checked_add(amount).ok_or("it is too long")?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total))
}

/// `64MiB`, `512B`. The error completes the sentence "this is no size: ...".
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty; write a number with a unit, such as \"64MiB\"".into());
    }
    match amount(text, "64MiB", &SIZES)? {
        (amount, "") => Ok(amount),
        (_, rest) => Err(format!("{rest:?} is left over after the unit")),
    }
}

/// A short text that `duration` reads back.
pub fn duration_text(duration: Duration) -> String {
    let mut millis = duration.as_millis() as u64;
    let mut text = String::new();
    for (unit, factor) in DURATIONS.iter().rev() {
        if millis >= *factor {
            text.push_str(&format!("{}{unit}", millis / factor));
            millis %= factor;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

fn amount<'a>(text: &'a str, example: &str, units: &[(&str, u64)]) -> Result<(u64, &'a str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 {
        return Err(format!("it does not start with a whole number; write it like {example:?}"));
    }
    let number: u64 = text[..digits].parse().map_err(|_| format!("{} is too large", &text[..digits]))?;
    let tail = text[digits..].trim_start();
    let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
    let (unit, rest) = tail.split_at(letters);
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if unit.is_empty() {
        return Err(if tail.starts_with('.') {
            format!("it is not a whole number; use a smaller unit, one of {}", known())
        } else {
            format!("the unit is missing; add one of {}", known())
        });
    }
    match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => {
            let amount = number.checked_mul(*factor).ok_or_else(|| format!("{number}{unit} is too large"))?;
            Ok((amount, rest))
        }
        None => Err(format!("{unit:?} is no known unit; use one of {}", known())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_exactly() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("14d"), Ok(Duration::from_secs(14 * 86_400)));
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("2 kB"), Ok(2_000));
    }

    #[test]
    fn a_wrong_unit_is_named_with_the_known_ones() {
        assert_eq!(duration("30sec").unwrap_err(), "\"sec\" is no known unit; use one of ms, s, m, h, d");
        assert_eq!(duration("30").unwrap_err(), "the unit is missing; add one of ms, s, m, h, d");
        assert_eq!(
            duration("1.5s").unwrap_err(),
            "it is not a whole number; use a smaller unit, one of ms, s, m, h, d"
        );
        assert!(duration("soon").unwrap_err().starts_with("it does not start with a whole number"));
        assert!(duration("18446744073709551615d").unwrap_err().ends_with("is too large"));
        assert!(size("64mib").unwrap_err().starts_with("\"mib\" is no known unit"));
    }

    #[test]
    fn durations_print_as_they_are_read() {
        for text in ["0s", "250ms", "30s", "1h30m", "14d"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }
}
