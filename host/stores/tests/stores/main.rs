//! Stores over real databases: one conformance suite for all, and what only one of them can break.

mod bed;
mod conformance;
mod postgres;

macro_rules! conforms {
    ($bed:path: $($case:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::conformance::$case(&$bed().await).await;
            }
        )+
    };
}

macro_rules! suite {
    ($name:ident, $bed:path) => {
        mod $name {
            conforms!($bed:
                d06_a_rolled_back_claim_leaves_nothing,
                d07_the_second_claim_is_a_duplicate,
                d03_keys_that_differ_by_case_or_space_are_different,
                d04_long_keys_are_hashed_and_labels_kept,
                d08_a_refused_row_is_no_duplicate_and_names_its_message,
                a_missing_parent_asks_for_a_later_try,
                effects_reach_the_database,
                guards_refuse_with_their_own_words,
                t08_a_failed_transaction_cannot_commit,
                o04_a_refused_row_blocks_its_key_only,
                o04_a_row_that_nobody_can_read_holds_up_no_other,
                a_waiting_message_that_nobody_can_read_holds_up_no_other,
                a_waiting_message_runs_for_the_holder_of_its_lease,
                plugin_sql_is_bound_and_bounded,
                migrating_again_does_nothing,
            );
        }
    };
}

suite!(on_postgres, crate::bed::postgres);
suite!(on_sqlite, crate::bed::sqlite);
