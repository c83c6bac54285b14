use ackwright_core::message::{Header, HeaderValue};
use ackwright_core::publisher::Publisher as _;
use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString};

use crate::support::{Rig, done, row, take};

fn header(name: &str, value: HeaderValue) -> Header {
    Header { name: name.into(), value }
}

#[tokio::test(flavor = "multi_thread")]
async fn r08_every_amqp_field_type_arrives_and_the_next_message_flows() {
    let rig = Rig::new().await;
    rig.queue("q", "quorum").await;
    let mut inner = FieldTable::default();
    inner.insert("deep".into(), AMQPValue::ShortInt(-7));
    let fields: Vec<(&str, AMQPValue, HeaderValue)> = vec![
        (
            "array",
            AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Void, true.into()])),
            HeaderValue::Array(vec![HeaderValue::Null, HeaderValue::Boolean(true)]),
        ),
        (
            "binary",
            AMQPValue::ByteArray(ByteArray::from(vec![0, 255])),
            HeaderValue::Bytes(Bytes::from_static(&[0, 255])),
        ),
        ("boolean", AMQPValue::Boolean(false), HeaderValue::Boolean(false)),
        (
            "decimal",
            AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 1999 }),
            HeaderValue::Decimal { scale: 2, unscaled: 1999 },
        ),
        ("double", AMQPValue::Double(0.1), HeaderValue::F64(0.1)),
        ("float", AMQPValue::Float(0.5), HeaderValue::F32(0.5)),
        ("i16", AMQPValue::ShortInt(i16::MIN), HeaderValue::I16(i16::MIN)),
        ("i32", AMQPValue::LongInt(i32::MIN), HeaderValue::I32(i32::MIN)),
        ("i64", AMQPValue::LongLongInt(i64::MIN), HeaderValue::I64(i64::MIN)),
        ("i8", AMQPValue::ShortShortInt(i8::MIN), HeaderValue::I8(i8::MIN)),
        (
            "odd text",
            AMQPValue::LongString(LongString::from(vec![0xff, b'a'])),
            HeaderValue::Bytes(Bytes::from_static(&[0xff, b'a'])),
        ),
        ("table", AMQPValue::FieldTable(inner), HeaderValue::Table(vec![header("deep", HeaderValue::I16(-7))])),
        ("text", AMQPValue::LongString("grün".into()), HeaderValue::Text("grün".into())),
        ("time", AMQPValue::Timestamp(1_700_000_000), HeaderValue::Timestamp(1_700_000_000_000_000)),
        ("u16", AMQPValue::ShortUInt(u16::MAX), HeaderValue::U16(u16::MAX)),
        ("u32", AMQPValue::LongUInt(u32::MAX), HeaderValue::U32(u32::MAX)),
        ("u8", AMQPValue::ShortShortUInt(u8::MAX), HeaderValue::U8(u8::MAX)),
        ("void", AMQPValue::Void, HeaderValue::Null),
    ];
    let mut table = FieldTable::default();
    for (name, field, _) in &fields {
        table.insert((*name).into(), field.clone());
    }
    let properties = BasicProperties::default()
        .with_headers(table)
        .with_message_id("m-1".into())
        .with_content_type("text/plain".into())
        .with_content_encoding("gzip".into())
        .with_delivery_mode(2)
        .with_priority(3)
        .with_correlation_id("c-1".into())
        .with_reply_to("answers".into())
        .with_expiration("600000".into())
        .with_timestamp(1_700_000_001)
        .with_type("ORDER_PAID".into())
        .with_user_id("guest".into())
        .with_app_id("shop".into())
        .with_cluster_id("east".into());
    rig.send("q", b"", properties).await;
    rig.send("q", b"next", BasicProperties::default()).await;
    let mut source = rig.source(rig.settings("q"));
    let deliveries = take(&mut source, 2).await;
    let message = &deliveries[0].message;
    let wanted: Vec<Header> = fields.into_iter().map(|(name, _, value)| header(name, value)).collect();
    assert_eq!(message.headers, wanted);
    assert_eq!(message.id.as_deref(), Some("m-1"));
    assert_eq!(message.content_type.as_deref(), Some("text/plain"));
    assert_eq!(message.published_at, Some(1_700_000_001_000_000));
    assert_eq!(message.body, Some(Bytes::new()));
    let text = |name: &str, value: &str| header(name, HeaderValue::Text(value.into()));
    assert_eq!(
        message.properties,
        [
            header("delivery-mode", HeaderValue::U8(2)),
            header("priority", HeaderValue::U8(3)),
            text("content-encoding", "gzip"),
            text("correlation-id", "c-1"),
            text("reply-to", "answers"),
            text("expiration", "600000"),
            text("type", "ORDER_PAID"),
            text("user-id", "guest"),
            text("app-id", "shop"),
            text("cluster-id", "east"),
        ]
    );
    assert_eq!(deliveries[1].message.body, Some(Bytes::from_static(b"next")));
    done(&source, deliveries).await;
    rig.depth_is("q", 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r08_what_is_published_arrives_as_it_was() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let publisher = rig.publisher(rig.publisher_settings());
    let mut sent = row(9, "q", "k");
    sent.headers = vec![
        header("a", HeaderValue::Bytes(Bytes::from_static(&[0xff]))),
        header("b", HeaderValue::U16(9)),
        header("c", HeaderValue::Table(vec![header("d", HeaderValue::Decimal { scale: 1, unscaled: 15 })])),
    ];
    sent.body = Bytes::from(vec![7; 300_000]);
    assert_eq!(publisher.publish(std::slice::from_ref(&sent)).await, [Ok(())]);
    let mut source = rig.source(rig.settings("q"));
    let deliveries = take(&mut source, 1).await;
    let message = &deliveries[0].message;
    assert_eq!(message.headers, sent.headers);
    assert_eq!(message.body.as_ref(), Some(&sent.body));
    assert_eq!(message.id, Some(sent.id.to_string()));
    assert_eq!(message.content_type, sent.content_type);
    assert_eq!(message.properties, [header("delivery-mode", HeaderValue::U8(2))]);
    done(&source, deliveries).await;
}
