//! Memory that is used up ends the process at once, with the line and the exit code of `bccnd/process/fatal.py`.
//!
//! Rust itself would abort, which looks like a fault of ours, with a traceback of where.

use std::alloc::{GlobalAlloc, Layout, System};

const LINE: &[u8] = b"bccnd: out of memory, leaving at once with exit code 7\n";
const OUT_OF_MEMORY: i32 = 7;

extern "C" {
    fn write(descriptor: i32, from: *const u8, size: usize) -> isize;
    fn _exit(code: i32) -> !;
}

/// The allocator of the system, which never returns without memory.
pub struct Allocator;

fn given(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        // SAFETY: both calls take what they get by value, and the line lives as long as the program.
        unsafe {
            write(2, LINE.as_ptr(), LINE.len());
            _exit(OUT_OF_MEMORY);
        }
    }
    memory
}

// SAFETY: all is as the system's allocator does it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        given(System.alloc(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        given(System.alloc_zeroed(layout))
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given(System.realloc(memory, layout, size))
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        System.dealloc(memory, layout);
    }
}
