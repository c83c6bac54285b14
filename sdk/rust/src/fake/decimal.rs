//! Just enough exact arithmetic for the fake host's `add`, floors and versions.

use std::cmp::Ordering;

/// An unscaled number and its number of decimal places.
#[derive(Clone, Copy)]
pub struct Decimal(i128, u32);

impl Decimal {
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{fraction}");
        Some(Decimal(digits.parse().ok()?, u32::try_from(fraction.len()).ok()?))
    }

    pub fn plus(self, other: Self) -> Option<Self> {
        let scale = self.1.max(other.1);
        Some(Decimal(self.at(scale)?.checked_add(other.at(scale)?)?, scale))
    }

    pub fn compare(self, other: Self) -> Option<Ordering> {
        let scale = self.1.max(other.1);
        Some(self.at(scale)?.cmp(&other.at(scale)?))
    }

    pub fn text(self) -> String {
        let (sign, digits) = if self.0 < 0 { ("-", self.0.unsigned_abs()) } else { ("", self.0.unsigned_abs()) };
        let places = self.1 as usize;
        let digits = format!("{digits:0>width$}", width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }

    fn at(self, scale: u32) -> Option<i128> {
        self.0.checked_mul(10_i128.checked_pow(scale - self.1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_and_have_one_spelling() {
        let sum = |a, b| Decimal::parse(a).unwrap().plus(Decimal::parse(b).unwrap()).unwrap().text();
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("-0.05", "0.04"), "-0.01");
        assert_eq!(sum("10.50", "-0.5"), "10");
        assert!(Decimal::parse("x").is_none());
    }
}
