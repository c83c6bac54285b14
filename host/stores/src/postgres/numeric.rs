//! The binary form of `numeric`: base 10,000 digits, a weight, a sign and a display scale.

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;

/// Appends the binary form of a decimal written with digits, at most one sign and at most one point.
pub(super) fn encode(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (NEGATIVE, rest),
        None => (POSITIVE, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) {
        return Err(format!("{text:?} is no decimal number"));
    }
    let scale = u16::try_from(fraction.len()).ok().filter(|s| *s <= 16_383);
    let Some(scale) = scale else { return Err(format!("a decimal with {} digits after the point", fraction.len())) };
    let whole = whole.trim_start_matches('0');
    // Groups of four are counted from the point, so both ends are filled up with zeros.
    let head = (4 - whole.len() % 4) % 4;
    let tail = (4 - fraction.len() % 4) % 4;
    let all: Vec<u8> = std::iter::repeat_n(b'0', head)
        .chain(whole.bytes())
        .chain(fraction.bytes())
        .chain(std::iter::repeat_n(b'0', tail))
        .collect();
    let mut groups: Vec<u16> =
        all.chunks(4).map(|four| four.iter().fold(0, |n, digit| n * 10 + u16::from(digit - b'0'))).collect();
    let mut weight = (whole.len() + head) as i64 / 4 - 1;
    let leading = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..leading);
    weight -= leading as i64;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let (sign, weight) = if groups.is_empty() { (POSITIVE, 0) } else { (sign, weight) };
    let weight = i16::try_from(weight).map_err(|_| "a decimal with too many digits".to_owned())?;
    let count = u16::try_from(groups.len()).map_err(|_| "a decimal with too many digits".to_owned())?;
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
    groups.iter().for_each(|g| out.extend_from_slice(&g.to_be_bytes()));
    Ok(())
}

/// The one spelling of the number: no trailing zeros of the fraction, no sign of zero.
pub(super) fn decode(bytes: &[u8]) -> Result<String, String> {
    let (words, rest) = bytes.as_chunks::<2>();
    let [count, weight, sign, _scale, groups @ ..] = words else { return Err("it is cut short".into()) };
    if !rest.is_empty() || usize::from(u16::from_be_bytes(*count)) != groups.len() {
        return Err("it has the wrong length".into());
    }
    let sign = u16::from_be_bytes(*sign);
    match sign {
        POSITIVE | NEGATIVE => {}
        NAN => return Err("NaN is no number".into()),
        _ => return Err("infinity is no number".into()),
    }
    let weight = i64::from(i16::from_be_bytes(*weight));
    let mut whole = String::new();
    let mut fraction = String::new();
    if weight < 0 {
        (weight + 1..0).for_each(|_| fraction.push_str("0000"));
    }
    for (at, group) in groups.iter().enumerate() {
        let four = format!("{:04}", u16::from_be_bytes(*group));
        if at as i64 <= weight { whole.push_str(&four) } else { fraction.push_str(&four) }
    }
    (groups.len() as i64..=weight).for_each(|_| whole.push_str("0000"));
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let mut text = String::with_capacity(whole.len() + fraction.len() + 3);
    if sign == NEGATIVE && !(whole.is_empty() && fraction.is_empty()) {
        text.push('-');
    }
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_come_back_as_they_went() {
        for text in [
            "0",
            "1",
            "-1",
            "9999",
            "10000",
            "100000000",
            "0.1",
            "-0.0001",
            "0.00001",
            "12345.6789",
            "0.000000012",
            "123456789012345678901234567890.123456789",
            "-99999999999999999999",
            "40000.0004",
        ] {
            let mut bytes = Vec::new();
            encode(text, &mut bytes).unwrap();
            assert_eq!(decode(&bytes).unwrap(), text);
        }
    }

    #[test]
    fn another_spelling_becomes_the_one_spelling() {
        for (text, one) in [("007.50", "7.5"), ("-0.00", "0"), ("+3", "3"), (".5", "0.5"), ("5.", "5")] {
            let mut bytes = Vec::new();
            encode(text, &mut bytes).unwrap();
            assert_eq!(decode(&bytes).unwrap(), one);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", ".", "NaN", "1e5", "1 ", "--1", "1.2.3"] {
            assert!(encode(text, &mut Vec::new()).is_err(), "{text:?}");
        }
        assert!(decode(&[0, 0, 0, 0, 0xC0, 0, 0, 0]).is_err());
        assert!(decode(&[0, 0, 0, 0, 0xD0, 0, 0, 0]).is_err());
    }
}
