//! The code that wit-bindgen generates from `wit/`: once, for all plugins. Nothing outside this crate names it, but
//! for the export macro.

#![allow(unsafe_code, missing_docs, clippy::all)]

wit_bindgen::generate!({
    path: "../../wit",
    world: "handler",
    generate_all,
    pub_export_macro: true,
    additional_derives: [PartialEq],
    export_macro_name: "__export_world",
    default_bindings_module: "ackwright_sdk::bindings",
    runtime_path: "ackwright_sdk::wit_bindgen_rt::rt",
});
