pub mod bindings; pub use wit_bindgen as wit_bindgen_rt; extern crate self as ackwright_sdk;
