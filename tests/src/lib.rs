//! Nothing of its own: the tests are in `suite/`, and what they share with other crates' tests is in `support/`.
