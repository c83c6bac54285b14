//! Exact decimal arithmetic of up to 38 digits, for columns whose numbers SQLite itself would round.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    unscaled: i128,
    scale: u32,
}

impl Decimal {
    /// Digits with at most one point and an optional sign; anything else, or too many digits, is `None`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let unscaled = format!("{sign}{whole}{fraction}");
        let unscaled = if whole.is_empty() && fraction.is_empty() { 0 } else { unscaled.parse().ok()? };
        Some(Decimal { unscaled, scale: u32::try_from(fraction.len()).ok()? })
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let (a, b, scale) = self.aligned(other)?;
        Some(Decimal { unscaled: a.checked_add(b)?, scale })
    }

    pub(super) fn compare(self, other: Self) -> Option<Ordering> {
        let (a, b, _) = self.aligned(other)?;
        Some(a.cmp(&b))
    }

    /// The one spelling of each number: no sign of zero, no trailing zeros of the fraction.
    pub(super) fn text(self) -> String {
        let digits = format!("{:0>width$}", self.unscaled.unsigned_abs(), width = self.scale as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.scale as usize);
        let fraction = fraction.trim_end_matches('0');
        let sign = if self.unscaled < 0 { "-" } else { "" };
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }

    fn aligned(self, other: Self) -> Option<(i128, i128, u32)> {
        let scale = self.scale.max(other.scale);
        let up = |d: Self| d.unscaled.checked_mul(10_i128.checked_pow(scale - d.scale)?);
        Some((up(self)?, up(other)?, scale))
    }
}

/// Digits that carry the number: what a binary float of 64 bits keeps exactly up to 15.
pub(super) fn significant(text: &str) -> usize {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let trimmed = digits.trim_start_matches('0');
    if text.contains('.') { trimmed.len() } else { trimmed.trim_end_matches('0').len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_and_spelled_one_way() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("-1", "1.00", "0"),
            ("-0.05", "0.01", "-0.04"),
            ("12345678901234567890.5", "0.5", "12345678901234567891"),
            ("100", "-0.001", "99.999"),
        ] {
            let total = Decimal::parse(a).unwrap().add(Decimal::parse(b).unwrap()).unwrap();
            assert_eq!(total.text(), sum, "{a} + {b}");
        }
        assert!(Decimal::parse("1e5").is_none());
        assert!(Decimal::parse("").is_none());
        assert!(Decimal::parse(".").is_none());
    }

    #[test]
    fn numbers_compare_by_value_and_not_by_text() {
        let compare = |a: &str, b: &str| Decimal::parse(a).unwrap().compare(Decimal::parse(b).unwrap()).unwrap();
        assert_eq!(compare("9", "10"), Ordering::Less);
        assert_eq!(compare("1.50", "1.5"), Ordering::Equal);
        assert_eq!(compare("-2", "-10"), Ordering::Greater);
    }
}
