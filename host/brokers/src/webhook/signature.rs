//! HMAC-SHA256 over the body, as most senders of webhooks sign it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use hyper::header::{HeaderMap, HeaderName};
use sha2::Sha256;

use crate::secret::Secret;

/// How bodies are signed and checked.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Header that carries the signature: `x-hub-signature-256`.
    pub header: HeaderName,
    /// What stands before the code in the header's value: `sha256=`.
    pub prefix: String,
    pub encoding: Encoding,
    /// The first one signs; any of them verifies, so that secrets can be changed without a gap.
    pub secrets: Vec<Secret>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Hex,
    Base64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not a header name")]
    Header(String),
    #[error("a signature needs at least one secret that is not empty")]
    NoSecret,
}

impl Signature {
    /// Hexadecimal with the prefix `sha256=`, as GitHub and many others write it.
    pub fn new(header: &str, secret: Secret) -> Result<Self, Error> {
        let header = HeaderName::try_from(header).map_err(|_| Error::Header(header.to_owned()))?;
        if secret.expose().is_empty() {
            return Err(Error::NoSecret);
        }
        Ok(Signature { header, prefix: "sha256=".into(), encoding: Encoding::Hex, secrets: vec![secret] })
    }

    /// The header's value for this body.
    pub fn sign(&self, body: &[u8]) -> Result<String, Error> {
        let code = code(self.secrets.first().ok_or(Error::NoSecret)?, body).finalize().into_bytes();
        Ok(match self.encoding {
            Encoding::Hex => format!("{}{}", self.prefix, hex::encode(code)),
            Encoding::Base64 => format!("{}{}", self.prefix, STANDARD.encode(code)),
        })
    }

    /// Whether one of the header's values signs this body with one of the secrets. Codes are compared in constant
    /// time.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        headers.get_all(&self.header).iter().any(|value| {
            let Some(sent) = value.to_str().ok().and_then(|v| v.trim().strip_prefix(self.prefix.as_str())) else {
                return false;
            };
            let sent = match self.encoding {
                Encoding::Hex => hex::decode(sent).ok(),
                Encoding::Base64 => STANDARD.decode(sent).ok(),
            };
            sent.is_some_and(|sent| self.secrets.iter().any(|secret| code(secret, body).verify_slice(&sent).is_ok()))
        })
    }
}

fn code(secret: &Secret, body: &[u8]) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes a key of any length");
    code.update(body);
    code
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signature() -> Signature {
        Signature::new("X-Hub-Signature-256", Secret::new("It's a Secret to Everybody")).unwrap()
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static("x-hub-signature-256"), value.parse().unwrap())])
    }

    #[test]
    fn the_published_example_of_github_verifies() {
        let wanted = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert_eq!(signature().sign(b"Hello, World!").unwrap(), wanted);
        assert!(signature().verify(&headers(wanted), b"Hello, World!"));
        assert!(!signature().verify(&headers(wanted), b"Hello, World?"));
        assert!(!signature().verify(&headers(&wanted[7..]), b"Hello, World!"), "prefix left out");
        assert!(!signature().verify(&headers("sha256="), b"Hello, World!"), "empty code");
        assert!(!signature().verify(&HeaderMap::new(), b"Hello, World!"), "no header");
    }

    #[test]
    fn a_former_secret_still_verifies_while_it_is_listed() {
        let old = signature().sign(b"body").unwrap();
        let mut both = signature();
        both.secrets.insert(0, Secret::new("new"));
        assert_ne!(both.sign(b"body").unwrap(), old);
        assert!(both.verify(&headers(&old), b"body"));
        both.secrets.pop();
        assert!(!both.verify(&headers(&old), b"body"));
    }

    #[test]
    fn an_empty_secret_is_refused_and_none_is_printed() {
        assert_eq!(Signature::new("x-sig", Secret::new("")).unwrap_err(), Error::NoSecret);
        assert!(!format!("{:?}", signature()).contains("Everybody"));
    }

    proptest! {
        #[test]
        fn only_the_signed_body_verifies(
            body in prop::collection::vec(any::<u8>(), 0..64),
            other in prop::collection::vec(any::<u8>(), 0..64),
            base64 in any::<bool>(),
        ) {
            let mut signature = signature();
            if base64 {
                signature.encoding = Encoding::Base64;
            }
            let signed = headers(&signature.sign(&body).unwrap());
            prop_assert!(signature.verify(&signed, &body));
            prop_assert_eq!(signature.verify(&signed, &other), body == other);
        }
    }
}
