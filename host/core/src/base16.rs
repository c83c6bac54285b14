//! Bytes as hexadecimal text in stored envelopes.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).map(char::from).collect()
}

pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

pub fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&encode(bytes))
}

pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(from)?;
    decode(&text).map(Bytes::from).ok_or_else(|| D::Error::custom("expected hexadecimal text"))
}
