;; A guest that does what the first byte of the body says. It is written out by hand, so that the host's tests depend
;; on no SDK. `identify` takes the message id as the business key.
(module
  (import "ackwright:handler/log@0.1.0" "log" (func $log (param i32 i32 i32 i32 i32)))
  (import "ackwright:handler/context@0.1.0" "current" (func $current (param i32)))
  (import "ackwright:handler/store@0.1.0" "get" (func $get (param i32 i32 i32 i32 i32)))
  (import "ackwright:handler/store@0.1.0" "upsert" (func $upsert (param i32 i32 i32 i32 i32 i32 i32)))
  (import "ackwright:handler/outbox@0.1.0" "emit"
    (func $emit (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  ;;IMPORTS
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 65536))
  (data (i32.const 1024) "test")
  (data (i32.const 1032) "items")
  (data (i32.const 1040) "secrets")
  (data (i32.const 1048) "id")
  (data (i32.const 1052) "n")
  (data (i32.const 1056) "events:done")
  (data (i32.const 1072) "no-funds")
  (data (i32.const 1088) "the account is empty")
  (data (i32.const 1120) "panicked at 'boom'")

  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at
      (i32.and (i32.sub (i32.add (global.get $heap) (local.get 2)) (i32.const 1)) (i32.sub (i32.const 0) (local.get 2))))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
      (then
        (if (i32.eq (i32.const -1)
              (memory.grow
                (i32.add (i32.const 1)
                  (i32.shr_u
                    (i32.sub (global.get $heap) (i32.mul (memory.size) (i32.const 65536))) (i32.const 16)))))
          (then unreachable))))
    (local.get $at))

  (func $kind (param $message i32) (result i32)
    (if (result i32) (i32.and (i32.load8_u offset=80 (local.get $message)) (i32.ne (i32.const 0) (i32.load offset=88 (local.get $message))))
      (then (i32.load8_u (i32.load offset=84 (local.get $message))))
      (else (i32.const 111))))

  (func $is (param $message i32) (param $kind i32) (result i32)
    (i32.eq (call $kind (local.get $message)) (local.get $kind)))

  (func $deep_in_the_guest unreachable)
  (func $recurse (param i32) (result i32)
    (i32.add (i32.const 1) (call $recurse (i32.add (local.get 0) (i32.const 1)))))

  ;; One row: the message id and a number, into the table that is named.
  (func $write (param $message i32) (param $table i32) (param $length i32)
    (i32.store (i32.const 512) (i32.const 1048))
    (i32.store (i32.const 516) (i32.const 2))
    (i32.store8 (i32.const 520) (i32.const 5))
    (i32.store (i32.const 528) (i32.load offset=4 (local.get $message)))
    (i32.store (i32.const 532) (i32.load offset=8 (local.get $message)))
    (i32.store (i32.const 536) (i32.const 1052))
    (i32.store (i32.const 540) (i32.const 1))
    (i32.store8 (i32.const 544) (i32.const 2))
    (i64.store (i32.const 552) (call $number))
    (i32.store (i32.const 600) (i32.const 1048))
    (i32.store (i32.const 604) (i32.const 2))
    (call $upsert (local.get $table) (local.get $length) (i32.const 600) (i32.const 1) (i32.const 512) (i32.const 2)
      (i32.const 640)))

  (func $number (result i64) (;NUMBER;) (i64.const 7))

  (func (export "ackwright:handler/consumer@0.1.0#identify") (param $message i32) (result i32)
    (if (call $is (local.get $message) (i32.const 73)) (then (loop $forever (br $forever)))) ;; I
    (if (call $is (local.get $message) (i32.const 83)) ;; S
      (then (call $write (local.get $message) (i32.const 1032) (i32.const 5))))
    (if (call $is (local.get $message) (i32.const 67)) (then (call $current (i32.const 700)))) ;; C
    (if (call $is (local.get $message) (i32.const 74)) ;; J
      (then
        (i32.store8 (i32.const 256) (i32.const 1))
        (i32.store (i32.const 260) (i32.const 1072))
        (i32.store (i32.const 264) (i32.const 8))
        (i32.store (i32.const 268) (i32.const 1088))
        (i32.store (i32.const 272) (i32.const 20))
        (return (i32.const 256))))
    (i32.store8 (i32.const 256) (i32.const 0))
    (i32.store (i32.const 260) (i32.const 1024))
    (i32.store (i32.const 264) (i32.const 4))
    (i32.store (i32.const 268) (i32.const 300))
    (i32.store (i32.const 272) (i32.const 1))
    (i32.store (i32.const 300) (i32.load offset=4 (local.get $message)))
    (i32.store (i32.const 304) (i32.load offset=8 (local.get $message)))
    (i32.const 256))

  (func $"ackwright:handler/consumer@0.1.0#handle" (export "ackwright:handler/consumer@0.1.0#handle") (param $message i32) (result i32)
    (local $i i32)
    (i32.store8 (i32.const 400) (i32.const 0))
    (if (call $is (local.get $message) (i32.const 111)) ;; o
      (then
        (call $write (local.get $message) (i32.const 1032) (i32.const 5))
        (call $emit (i32.const 1056) (i32.const 11) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.load offset=4 (local.get $message)) (i32.load offset=8 (local.get $message)) (i32.const 720))))
    (if (call $is (local.get $message) (i32.const 100)) ;; d
      (then (call $write (local.get $message) (i32.const 1040) (i32.const 7))))
    (if (call $is (local.get $message) (i32.const 103)) ;; g
      (then
        (call $get (i32.const 1032) (i32.const 5) (i32.const 512) (i32.const 0) (i32.const 760))
        (call $write (local.get $message) (i32.const 1032) (i32.const 5))))
    (if (call $is (local.get $message) (i32.const 108)) (then (loop $forever (br $forever)))) ;; l
    (if (call $is (local.get $message) (i32.const 117)) (then (call $deep_in_the_guest))) ;; u
    (if (call $is (local.get $message) (i32.const 80)) ;; P
      (then
        (call $log (i32.const 4) (i32.const 1120) (i32.const 18) (i32.const 0) (i32.const 0))
        (call $deep_in_the_guest)))
    (if (call $is (local.get $message) (i32.const 114)) (then (drop (call $recurse (i32.const 0))))) ;; r
    (if (call $is (local.get $message) (i32.const 109)) ;; m
      (then (loop $forever (drop (memory.grow (i32.const 16))) (br $forever))))
    (if (call $is (local.get $message) (i32.const 99)) ;; c
      (then
        (drop (memory.grow (i32.const 640)))
        (call $log (i32.const 2) (i32.const 0) (i32.const 41943040) (i32.const 0) (i32.const 0))))
    (if (call $is (local.get $message) (i32.const 76)) ;; L
      (then
        (loop $more
          (call $log (i32.const 2) (i32.const 0) (i32.const 60000) (i32.const 0) (i32.const 0))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (i32.const 1000))))))
    (if (call $is (local.get $message) (i32.const 120)) ;; x
      (then
        (i32.store8 (i32.const 400) (i32.const 1))
        (i32.store8 (i32.const 404) (i32.const 0))
        (call $say)))
    (if (call $is (local.get $message) (i32.const 121)) ;; y
      (then
        (i32.store8 (i32.const 400) (i32.const 1))
        (i32.store8 (i32.const 404) (i32.const 1))
        (call $say)
        (i32.store8 (i32.const 424) (i32.const 1))
        (i32.store (i32.const 428) (i32.const 1500))))
    (i32.const 400))

  (func $say
    (i32.store (i32.const 408) (i32.const 1072))
    (i32.store (i32.const 412) (i32.const 8))
    (i32.store (i32.const 416) (i32.const 1088))
    (i32.store (i32.const 420) (i32.const 20)))
)
