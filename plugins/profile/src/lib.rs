//! Keeps the newest version of each profile, in whatever order the versions arrive.

use ackwright_sdk::prelude::*;
use serde::Deserialize;

#[derive(Deserialize, Row)]
#[row(table = "profiles", key("user_id"), version = "version")]
struct Profile {
    user_id: String,
    version: i64,
    name: String,
    email: Option<String>,
}

struct Profiles;

impl Handler for Profiles {
    fn identify(message: &Message) -> Result<Identity, Rejection> {
        let profile: Profile = message.json()?;
        Ok(Identity::new("profile").key(&profile.user_id).key(profile.version).ordered_by(profile.user_id))
    }

    fn handle(message: &Message) -> Result<(), Failure> {
        store::upsert_if_newer(&message.json::<Profile>()?)?;
        Ok(())
    }
}

ackwright_sdk::export!(Profiles);

#[cfg(test)]
mod tests {
    use super::*;
    use ackwright_sdk::fake::{Host, Outcome, Table, Type};

    fn host() -> Host {
        Host::new().table(
            Table::new("profiles")
                .column("user_id", Type::Text)
                .column("version", Type::Integer)
                .column("name", Type::Text)
                .nullable("email", Type::Text)
                .key(&["user_id"]),
        )
    }

    fn version(version: i64, name: &str) -> Message {
        Message::new("topic.profiles").with_body(format!(r#"{{"user_id":"u-1","version":{version},"name":"{name}"}}"#))
    }

    #[test]
    fn the_newest_version_stays_in_every_order_of_arrival() {
        for order in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
            let mut host = host();
            for number in order {
                assert_eq!(host.deliver::<Profiles>(&version(number, &format!("name {number}"))), Outcome::Done);
            }
            let row = host.row("profiles", ("user_id", "u-1")).expect("the profile");
            assert_eq!((&row["version"], &row["name"]), (&Value::Integer(3), &Value::from("name 3")), "{order:?}");
            assert_eq!(row["email"], Value::Null);
        }
    }

    #[test]
    fn the_same_version_again_is_a_duplicate_even_with_another_name() {
        let mut host = host();
        assert_eq!(host.deliver::<Profiles>(&version(1, "first")), Outcome::Done);
        assert_eq!(host.deliver::<Profiles>(&version(1, "second")), Outcome::Duplicate);
        assert_eq!(host.row("profiles", ("user_id", "u-1")).expect("the profile")["name"], Value::from("first"));
    }
}
