//! A global allocator for guests that live for one message.
//!
//! The ordinary allocator grows the memory in every fresh instance, which costs the host two process-wide system
//! calls a message. This one serves from a static arena first; what does not fit goes to the ordinary allocator,
//! so a large message costs more but never fails for it.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

const SIZE: usize = 256 << 10;

#[repr(C, align(16))]
struct Arena {
    bytes: UnsafeCell<[u8; SIZE]>,
    used: Cell<usize>,
}

// SAFETY: a guest of this target has one thread.
unsafe impl Sync for Arena {}

#[global_allocator]
static ARENA: Arena = Arena { bytes: UnsafeCell::new([0; SIZE]), used: Cell::new(0) };

impl Arena {
    fn base(&self) -> usize {
        self.bytes.get() as usize
    }

    fn holds(&self, pointer: *mut u8) -> bool {
        (pointer as usize).wrapping_sub(self.base()) < SIZE
    }

    /// Whether the block is the last one handed out, so that it can shrink, grow or go in place.
    fn is_last(&self, pointer: *mut u8, size: usize) -> bool {
        pointer as usize - self.base() + size == self.used.get()
    }
}

// SAFETY: blocks are disjoint, since `used` only moves past a block when it is handed out and back over it when it
// was the last one; a block of the arena never reaches `System`, nor the other way round.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = (self.base() + self.used.get()).next_multiple_of(layout.align()) - self.base();
        match start.checked_add(layout.size()) {
            Some(end) if end <= SIZE => {
                self.used.set(end);
                (self.base() + start) as *mut u8
            }
            _ => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !self.holds(pointer) {
            unsafe { System.dealloc(pointer, layout) }
        } else if self.is_last(pointer, layout.size()) {
            self.used.set(pointer as usize - self.base());
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.holds(pointer) {
            return unsafe { System.realloc(pointer, layout, size) };
        }
        if size <= layout.size() {
            return pointer;
        }
        if self.is_last(pointer, layout.size()) {
            let start = pointer as usize - self.base();
            if start + size <= SIZE {
                self.used.set(start + size);
                return pointer;
            }
        }
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(pointer, moved, layout.size());
                self.dealloc(pointer, layout);
            }
            moved
        }
    }
}
