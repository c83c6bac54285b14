//! What a file is, told from its outside: nothing is compiled and nothing runs.

use std::fmt;

use serde::Serialize;
use wasmparser::{Encoding, Parser, Payload};

/// The package that host and plugins share.
pub const PACKAGE: &str = "ackwright:handler";
/// Its version that this host speaks.
pub const CONTRACT: &str = "0.1.0";

/// What `inspect` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    pub kind: Kind,
    /// BLAKE3 of the file, in hexadecimal.
    pub digest: String,
    /// Bytes.
    pub size: usize,
    /// Version of the contract that the plugin was built for; absent where it exports and imports nothing of it.
    pub contract: Option<String>,
    pub exports: Vec<String>,
    pub imports: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Component,
    /// A core module that carries component metadata: what a plain `cargo build` makes.
    CoreModule,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Component => "component",
            Kind::CoreModule => "core module with component metadata",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it is not a WebAssembly file: it begins with {begins:?} where \"\\0asm\" was expected")]
    NotWasm { begins: String },
    #[error("the file is damaged or cut short")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "it is a core module without component metadata; build it with the Ackwright SDK, or with bindings for the \
         world `handler` of {PACKAGE}@{CONTRACT}"
    )]
    NoMetadata(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),
}

/// Tells what a file is, what it exports and imports, and which version of the contract it was built for.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, Error> {
    examine(bytes).map(|(inspection, _)| inspection)
}

/// The same, with the component that a core module was made into.
pub(crate) fn examine(bytes: &[u8]) -> Result<(Inspection, Option<Vec<u8>>), Error> {
    let (kind, component) = componentize(bytes)?;
    let (exports, imports) = names(component.as_deref().unwrap_or(bytes)).map_err(|e| Error::Damaged(e.into()))?;
    let inspection = Inspection {
        kind,
        digest: blake3::hash(bytes).to_hex().to_string(),
        size: bytes.len(),
        contract: exports.iter().chain(&imports).find_map(|name| version_of(name)).map(str::to_owned),
        exports,
        imports,
    };
    Ok((inspection, component))
}

/// The component where the file is a core module; nothing where it is one already.
fn componentize(bytes: &[u8]) -> Result<(Kind, Option<Vec<u8>>), Error> {
    if !bytes.starts_with(b"\0asm") {
        let begins = String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned();
        return Err(Error::NotWasm { begins });
    }
    if Parser::is_component(bytes) {
        return Ok((Kind::Component, None));
    }
    if !Parser::is_core_wasm(bytes) {
        return Err(Error::Damaged("its version is neither that of a module nor that of a component".into()));
    }
    if !has_metadata(bytes).map_err(|e| Error::Damaged(e.into()))? {
        return Err(Error::NoMetadata(None));
    }
    let component = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(bytes)
        .and_then(|encoder| encoder.encode())
        .map_err(|e| Error::NoMetadata(Some(e.into())))?;
    Ok((Kind::CoreModule, Some(component)))
}

/// The version in a name like `ackwright:handler/store@0.1.0`, where the name is of our package.
pub(crate) fn version_of(name: &str) -> Option<&str> {
    name.strip_prefix(PACKAGE)?.strip_prefix('/')?.split_once('@').map(|(_, version)| version)
}

/// Versions before 1.0 are compatible within the second number.
pub(crate) fn compatible(version: &str) -> bool {
    fn head(version: &str) -> (&str, Option<&str>) {
        let mut parts = version.split('.');
        let major = parts.next().unwrap_or_default();
        (major, if major == "0" { parts.next() } else { None })
    }
    head(version) == head(CONTRACT)
}

/// Names of the exports and imports of the outermost component.
fn names(component: &[u8]) -> Result<(Vec<String>, Vec<String>), wasmparser::BinaryReaderError> {
    let (mut exports, mut imports, mut depth) = (Vec::new(), Vec::new(), 0u32);
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((exports, imports))
}

fn has_metadata(module: &[u8]) -> Result<bool, wasmparser::BinaryReaderError> {
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::CustomSection(section) if section.name().starts_with("component-type") => return Ok(true),
            Payload::Version { encoding: Encoding::Component, .. } => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}
