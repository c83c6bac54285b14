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

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ARENA: Arena = Arena::new();

impl Arena {
    const fn new() -> Self {
        Arena { bytes: UnsafeCell::new([0; SIZE]), used: Cell::new(0) }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// A block of this size, filled with a mark.
    fn filled(arena: &Arena, layout: Layout, mark: u8) -> *mut u8 {
        let block = unsafe { arena.alloc(layout) };
        assert!(!block.is_null());
        assert_eq!(block as usize % layout.align(), 0);
        unsafe { block.write_bytes(mark, layout.size()) };
        block
    }

    fn holds_mark(block: *mut u8, size: usize, mark: u8) -> bool {
        unsafe { std::slice::from_raw_parts(block, size) }.iter().all(|byte| *byte == mark)
    }

    #[test]
    fn blocks_are_aligned_and_disjoint() {
        let arena = Box::new(Arena::new());
        let sizes = [(1, 1), (7, 8), (0, 1), (33, 16), (5, 4), (1000, 64), (3, 2)];
        let blocks: Vec<_> = sizes
            .iter()
            .zip(1..)
            .map(|((size, align), mark)| (filled(&arena, layout(*size, *align), mark), *size, mark))
            .collect();
        for (block, size, mark) in blocks {
            assert!(arena.holds(block) && holds_mark(block, size, mark));
        }
    }

    #[test]
    fn the_last_block_grows_in_place_and_goes_back() {
        let arena = Box::new(Arena::new());
        let first = filled(&arena, layout(16, 8), 1);
        let last = filled(&arena, layout(16, 8), 2);
        let grown = unsafe { arena.realloc(last, layout(16, 8), 64) };
        assert_eq!(grown, last);
        unsafe { arena.dealloc(grown, layout(64, 8)) };
        assert_eq!(unsafe { arena.alloc(layout(64, 8)) }, last);
        let moved = unsafe { arena.realloc(first, layout(16, 8), 32) };
        assert!(moved != first && holds_mark(moved, 16, 1));
    }

    #[test]
    fn what_does_not_fit_comes_from_the_ordinary_allocator_with_its_content() {
        let arena = Box::new(Arena::new());
        let small = filled(&arena, layout(100, 1), 3);
        let large = unsafe { arena.realloc(small, layout(100, 1), SIZE + 1) };
        assert!(!arena.holds(large) && holds_mark(large, 100, 3));
        let larger = unsafe { arena.realloc(large, layout(SIZE + 1, 1), SIZE * 2) };
        assert!(holds_mark(larger, 100, 3));
        unsafe { arena.dealloc(larger, layout(SIZE * 2, 1)) };
        assert!(arena.holds(filled(&arena, layout(SIZE - 128, 1), 4)));
    }
}
