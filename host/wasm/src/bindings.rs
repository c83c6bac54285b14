//! The generated side of the contract. Nothing outside this crate sees it.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "handler",
    // Messages go into the guest as borrowed views; what comes out of it is owned.
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: {
        // These may wait on the database.
        "ackwright:handler/store.get": async | trappable,
        "ackwright:handler/store.get-for-update": async | trappable,
        "ackwright:handler/store.query": async | trappable,
        "ackwright:handler/store.execute": async | trappable,
        default: trappable,
    },
    exports: { default: async },
});
