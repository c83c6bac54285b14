//! A module of WebAssembly that is no plugin: it exports a function and carries no component metadata.

/// Something to export, so that the module is not empty.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> i32 {
    42
}
