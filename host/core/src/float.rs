//! Floats as text in stored headers: JSON numbers know neither NaN nor infinity, and readers of JSON may round.
//!
//! `0.1`, `-0`, `inf`, `-inf`; a NaN is written as its bits, `nan:7ff8000000000000`, as brokers carry them on.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

const NAN: &str = "nan:";

pub(crate) trait Float: Copy + Display + FromStr {
    /// The bits of a NaN, as hexadecimal text; nothing for other values, whose text says it all.
    fn nan(self) -> Option<String>;
    fn of_bits(text: &str) -> Option<Self>;
}

impl Float for f32 {
    fn nan(self) -> Option<String> {
        self.is_nan().then(|| format!("{:08x}", self.to_bits()))
    }

    fn of_bits(text: &str) -> Option<Self> {
        u32::from_str_radix(text, 16).ok().map(f32::from_bits)
    }
}

impl Float for f64 {
    fn nan(self) -> Option<String> {
        self.is_nan().then(|| format!("{:016x}", self.to_bits()))
    }

    fn of_bits(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(f64::from_bits)
    }
}

pub(crate) fn serialize<F: Float, S: Serializer>(float: &F, to: S) -> Result<S::Ok, S::Error> {
    match float.nan() {
        Some(bits) => to.collect_str(&format_args!("{NAN}{bits}")),
        // The shortest text that is read back as this value.
        None => to.collect_str(float),
    }
}

/// Numbers are read too: people write them in files.
pub(crate) fn deserialize<'a, F: Float, D: Deserializer<'a>>(from: D) -> Result<F, D::Error> {
    let text = match TextOrNumber::deserialize(from)? {
        TextOrNumber::Text(text) => text,
        TextOrNumber::Number(number) => number.to_string(),
    };
    let float = match text.strip_prefix(NAN) {
        Some(bits) => F::of_bits(bits),
        None => text.parse().ok(),
    };
    float.ok_or_else(|| D::Error::custom(format!("{text:?} is not a float")))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(serde_json::Number),
}
