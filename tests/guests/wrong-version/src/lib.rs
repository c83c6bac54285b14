//! A plugin built against `ackwright:handler@0.0.9`.

wit_bindgen::generate!({ path: "wit", world: "handler" });

use ackwright::handler::types::Message;

struct Old;

impl exports::ackwright::handler::consumer::Guest for Old {
    fn identify(message: Message) -> Result<String, String> {
        message.body.map(|body| String::from_utf8_lossy(&body).into_owned()).ok_or_else(|| "no body".into())
    }

    fn handle(_: Message) -> Result<(), String> {
        Ok(())
    }
}

export!(Old);
