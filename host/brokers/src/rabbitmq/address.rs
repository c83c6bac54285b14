//! Where a broker is and who we are there.
//!
//! **Invariant:** neither `Display` nor `Debug` shows the user or the password, and no error of parsing repeats the
//! text that was parsed.

use std::fmt;

use lapin::uri::{AMQPScheme, AMQPUri};

use super::settings::Error;

#[derive(Clone, PartialEq, Eq)]
pub struct Address(AMQPUri);

impl Address {
    /// Parses `amqp://user:password@host:port/vhost` or `amqps://...`. Special characters in user, password and
    /// virtual host are percent-encoded.
    pub fn parse(url: &str) -> Result<Self, Error> {
        // The parser's own words may quote the text, password included.
        url.parse().map(Address).map_err(|_| Error::Url)
    }

    pub(super) fn uri(&self) -> &AMQPUri {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.0.scheme {
            AMQPScheme::AMQP => "amqp",
            AMQPScheme::AMQPS => "amqps",
        };
        let authority = &self.0.authority;
        write!(f, "{scheme}://{}:{} (virtual host {:?})", authority.host, authority.port, self.0.vhost)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c02_neither_the_address_nor_its_errors_show_the_password() {
        let address = Address::parse("amqp://app:s3cr3t@broker.internal:5673/orders").unwrap();
        for shown in [format!("{address}"), format!("{address:?}")] {
            assert_eq!(shown, "amqp://broker.internal:5673 (virtual host \"orders\")");
        }
        for broken in ["amqp://app:s3cr3t@broker:notaport/", "http://app:s3cr3t@broker", "app:s3cr3t", "mailto:s3cr3t"]
        {
            let error = Address::parse(broken).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
        }
    }
}
