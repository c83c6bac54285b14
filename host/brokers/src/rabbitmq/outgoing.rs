//! An outbox row as a message of RabbitMQ.

use ackwright_core::outbox::Row;
use ackwright_core::publisher::Error;
use lapin::BasicProperties;
use lapin::types::{FrameSize, ShortString};

use super::destination::Destination;
use super::fields;
use super::settings::SHORT_TEXT;

pub(super) struct Outgoing {
    pub(super) destination: Destination,
    pub(super) properties: BasicProperties,
    /// Bytes of the frame that carries the properties. AMQP cannot split it, and one that is larger than the
    /// connection's frame size ends the connection.
    pub(super) header_frame: usize,
}

/// Frame type, channel, length and end; class, weight, body size and property flags.
const FRAME_FIXED: usize = 8 + 14;

const PERSISTENT: u8 = 2;

impl Outgoing {
    pub(super) fn new(row: &Row, own_exchange: &str) -> Result<Self, Error> {
        let destination = Destination::parse(&row.destination, own_exchange)?;
        let id = row.id.to_string();
        let mut size = FRAME_FIXED + 1 + 1 + id.len();
        let mut properties =
            BasicProperties::default().with_delivery_mode(PERSISTENT).with_message_id(ShortString::from(id));
        if let Some(content_type) = &row.content_type {
            let text = ShortString::try_new(content_type.as_str()).map_err(|_| {
                let bytes = content_type.len();
                Error::Permanent(format!("the content type is {bytes} bytes long; AMQP allows {SHORT_TEXT}"))
            })?;
            size += 1 + content_type.len();
            properties = properties.with_content_type(text);
        }
        if !row.headers.is_empty() {
            let table = fields::table(&row.headers).map_err(|e| Error::Permanent(e.to_string()))?;
            size += fields::table_size(&table);
            properties = properties.with_headers(table);
        }
        Ok(Outgoing { destination, properties, header_frame: size })
    }

    pub(super) fn fits(&self, frame_max: FrameSize) -> Result<(), Error> {
        if self.header_frame > frame_max as usize {
            return Err(Error::Permanent(format!(
                "headers and properties take {} bytes; the broker's frame_max allows {frame_max}; move large values into the body",
                self.header_frame
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ackwright_core::message::{Header, HeaderValue};
    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;

    fn row(headers: Vec<Header>) -> Row {
        Row {
            position: 1,
            id: Uuid::from_u128(7),
            broker: "events".into(),
            destination: "orders/order.paid".into(),
            order_key: "o-1".into(),
            content_type: Some("application/json".into()),
            headers,
            body: Bytes::from_static(b"{}"),
            attempts: 0,
        }
    }

    #[test]
    fn r10_headers_beyond_the_frame_size_are_refused_with_both_sizes() {
        let value = HeaderValue::Text("x".repeat(200_000));
        let outgoing = Outgoing::new(&row(vec![Header { name: "trace".into(), value }]), "").unwrap();
        let error = outgoing.fits(131_072).unwrap_err();
        assert!(matches!(&error, Error::Permanent(text) if text.contains("200") && text.contains("131072")), "{error}");
        assert_eq!(outgoing.fits(300_000), Ok(()));
    }

    #[test]
    fn the_id_of_the_row_is_the_id_of_the_message() {
        let outgoing = Outgoing::new(&row(Vec::new()), "").unwrap();
        let id = outgoing.properties.message_id().as_ref().map(ShortString::as_str);
        assert_eq!(id, Some("00000000-0000-0000-0000-000000000007"));
        assert_eq!(*outgoing.properties.delivery_mode(), Some(PERSISTENT));
    }
}
