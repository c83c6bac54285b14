//! Stored headers and envelopes: what is read back is what came in, bit by bit.

use ackwright_core::key::Identity;
use ackwright_core::message::{Header, HeaderValue, Message};
use ackwright_core::parked::Envelope;
use bytes::Bytes;
use proptest::prelude::*;

fn leaf() -> impl Strategy<Value = HeaderValue> {
    prop_oneof![
        Just(HeaderValue::Null),
        any::<bool>().prop_map(HeaderValue::Boolean),
        any::<i8>().prop_map(HeaderValue::I8),
        any::<u8>().prop_map(HeaderValue::U8),
        any::<i16>().prop_map(HeaderValue::I16),
        any::<u16>().prop_map(HeaderValue::U16),
        any::<i32>().prop_map(HeaderValue::I32),
        any::<u32>().prop_map(HeaderValue::U32),
        any::<i64>().prop_map(HeaderValue::I64),
        // Any bits: subnormal numbers, both zeros, infinities, and NaNs with what they carry.
        any::<u32>().prop_map(|bits| HeaderValue::F32(f32::from_bits(bits))),
        any::<u64>().prop_map(|bits| HeaderValue::F64(f64::from_bits(bits))),
        prop::sample::select(vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE])
            .prop_map(HeaderValue::F32),
        prop::sample::select(vec![f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MAX])
            .prop_map(HeaderValue::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, unscaled)| HeaderValue::Decimal { scale, unscaled }),
        any::<String>().prop_map(HeaderValue::Text),
        any::<Vec<u8>>().prop_map(|bytes| HeaderValue::Bytes(bytes.into())),
        any::<i64>().prop_map(HeaderValue::Timestamp),
    ]
}

fn value() -> impl Strategy<Value = HeaderValue> {
    leaf().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(HeaderValue::Array),
            headers(inner).prop_map(HeaderValue::Table),
        ]
    })
}

fn headers(value: impl Strategy<Value = HeaderValue>) -> impl Strategy<Value = Vec<Header>> {
    prop::collection::vec((any::<String>(), value).prop_map(|(name, value)| Header { name, value }), 0..4)
}

/// Equality by bits, for NaN equals nothing and the zeros equal each other.
fn same(one: &HeaderValue, two: &HeaderValue) -> bool {
    match (one, two) {
        (HeaderValue::F32(one), HeaderValue::F32(two)) => one.to_bits() == two.to_bits(),
        (HeaderValue::F64(one), HeaderValue::F64(two)) => one.to_bits() == two.to_bits(),
        (HeaderValue::Array(one), HeaderValue::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
        }
        (HeaderValue::Table(one), HeaderValue::Table(two)) => all_same(one, two),
        (one, two) => one == two,
    }
}

fn all_same(one: &[Header], two: &[Header]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.name == two.name && same(&one.value, &two.value))
}

proptest! {
    #[test]
    fn r08_every_header_is_read_back_bit_by_bit(stored in headers(value())) {
        let text = serde_json::to_string(&stored).unwrap();
        let back: Vec<Header> = serde_json::from_str(&text).unwrap();
        prop_assert!(all_same(&stored, &back), "{stored:?} came back as {back:?} from {text}");
    }

    #[test]
    fn an_envelope_is_read_back_whole(
        texts in any::<(Option<String>, String, Option<String>, Option<String>)>(),
        key in any::<Option<Vec<u8>>>(),
        published_at in any::<Option<i64>>(),
        body in any::<Option<Vec<u8>>>(),
        properties in headers(value()),
        identity in any::<Option<(String, Vec<String>, Option<String>)>>(),
    ) {
        let (id, source, subject, content_type) = texts;
        let body = body.map(Bytes::from);
        let key = key.map(Bytes::from);
        let headers = properties.clone();
        let message = Message { id, source, subject, key, content_type, headers, published_at, body, properties };
        let identity = identity.map(|(event_type, business_key, order_key)| Identity { event_type, business_key, order_key });
        let text = serde_json::to_string(&Envelope::of(&message, identity.as_ref())).unwrap();
        let back: Envelope = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back.identity, &identity);
        prop_assert!(all_same(&back.headers, &message.headers) && all_same(&back.properties, &message.properties));
        // Floats are compared above; the rest has an equality of its own.
        let bare = |message: Message| Message { headers: Vec::new(), properties: Vec::new(), ..message };
        prop_assert_eq!(bare(back.into_message(message.body.clone())), bare(message));
    }
}

#[test]
fn a_float_is_stored_as_text_and_read_from_numbers_too() {
    let text = |value| serde_json::to_string(&value).unwrap();
    assert_eq!(text(HeaderValue::F64(0.1)), r#"{"f64":"0.1"}"#);
    assert_eq!(text(HeaderValue::F32(f32::NEG_INFINITY)), r#"{"f32":"-inf"}"#);
    assert_eq!(text(HeaderValue::F64(f64::from_bits(0x7ff8_0000_0000_0000))), r#"{"f64":"nan:7ff8000000000000"}"#);
    let read = |text| serde_json::from_str::<HeaderValue>(text).unwrap();
    assert_eq!(read(r#"{"f32":0.5}"#), HeaderValue::F32(0.5));
    assert_eq!(read(r#"{"f64":3}"#), HeaderValue::F64(3.0));
    let error = serde_json::from_str::<HeaderValue>(r#"{"f64":"nan:xyz"}"#).unwrap_err();
    assert!(error.to_string().contains("nan:xyz"), "{error}");
}
