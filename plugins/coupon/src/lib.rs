//! An order was paid: the customer gets one coupon, and whoever wants to know is told.

use ackwright_sdk::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct OrderEvent {
    order_id: String,
    customer_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    campaign: String,
    /// In cents.
    #[serde(default = "five_euros")]
    amount: i64,
    /// Where `coupon.issued` goes.
    #[serde(default = "events")]
    emit_to: String,
}

fn five_euros() -> i64 {
    500
}

fn events() -> String {
    "events:coupon.issued".into()
}

/// The primary key is order and campaign: an order earns one coupon of a campaign, whoever asks.
#[derive(Row, Serialize)]
#[row(table = "coupons")]
struct Coupon {
    order_id: String,
    campaign: String,
    customer_id: String,
    amount: i64,
}

struct Coupons;

impl Handler for Coupons {
    fn identify(message: &Message) -> Result<Identity, Rejection> {
        let event: OrderEvent = message.json()?;
        Ok(Identity::new("ORDER_PAID").key(event.order_id))
    }

    fn handle(message: &Message) -> Result<(), Failure> {
        let event: OrderEvent = message.json()?;
        let settings: Settings = settings::load()?;
        let coupon = Coupon {
            order_id: event.order_id,
            campaign: settings.campaign,
            customer_id: event.customer_id,
            amount: settings.amount,
        };
        store::insert(&coupon)?;
        outbox::to(settings.emit_to)
            .key(&coupon.customer_id)
            .header("eventType", "coupon.issued")
            .emit_json(&coupon)?;
        ackwright_sdk::debug!("coupon issued", order_id = coupon.order_id, campaign = coupon.campaign);
        Ok(())
    }
}

ackwright_sdk::export!(Coupons);

#[cfg(test)]
mod tests {
    use super::*;
    use ackwright_sdk::fake::{Host, Outcome, Table, Type};

    fn host() -> Host {
        Host::new()
            .table(
                Table::new("coupons")
                    .column("order_id", Type::Text)
                    .column("campaign", Type::Text)
                    .column("customer_id", Type::Text)
                    .column("amount", Type::Integer)
                    .key(&["order_id", "campaign"]),
            )
            .allow_emit("events:coupon.*")
            .settings(serde_json::json!({"campaign": "winter"}))
    }

    fn paid(order: &str) -> Message {
        Message::new("queue.marketing").with_body(format!(r#"{{"order_id":"{order}","customer_id":"c-1","total":3}}"#))
    }

    #[test]
    fn a_paid_order_earns_one_coupon_and_one_emit() {
        let mut host = host();
        assert_eq!(host.deliver::<Coupons>(&paid("o-1")), Outcome::Done);
        assert_eq!(host.deliver::<Coupons>(&paid("o-1")), Outcome::Duplicate);
        let coupon = host.row("coupons", [("order_id", "o-1"), ("campaign", "winter")]).expect("the coupon");
        assert_eq!(coupon["customer_id"], Value::from("c-1"));
        assert_eq!(coupon["amount"], Value::Integer(500));
        let [emitted] = host.emitted() else { panic!("one emit, not {:?}", host.emitted()) };
        assert_eq!(emitted.message.destination, "events:coupon.issued");
        let body: serde_json::Value = serde_json::from_slice(&emitted.message.body).unwrap();
        assert_eq!(body["order_id"], "o-1");
    }

    #[test]
    fn an_order_that_has_its_coupon_is_rejected_by_the_primary_key() {
        let mut host = host().seed(
            "coupons",
            ackwright_sdk::row! { "order_id": "o-1", "campaign": "winter", "customer_id": "c-9", "amount": 1 },
        );
        let Outcome::Rejected(rejection) = host.deliver::<Coupons>(&paid("o-1")) else { panic!("not rejected") };
        assert_eq!(rejection.code, "coupons_pkey");
        assert!(host.emitted().is_empty());
    }

    #[test]
    fn a_body_without_an_order_is_rejected_with_the_missing_field() {
        let message = Message::new("q").with_body(r#"{"customer_id":"c-1"}"#);
        let Outcome::Rejected(rejection) = host().deliver::<Coupons>(&message) else { panic!("not rejected") };
        assert_eq!(rejection.code, "bad-json");
        assert!(rejection.reason.contains("order_id"), "{}", rejection.reason);
    }

    #[test]
    fn a_misspelled_setting_is_a_retry_that_names_it() {
        let mut host = host().settings(serde_json::json!({"campagne": "winter"}));
        let Outcome::Retry(delay) = host.deliver::<Coupons>(&paid("o-1")) else { panic!("not a retry") };
        assert!(delay.reason.contains("campagne"), "{}", delay.reason);
    }
}
