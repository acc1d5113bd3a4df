//! Where each part of `lease_core::Memory` lies in the shared memory. Sizes follow from `max_connections` and
//! `pg_lease.max_claims` and never change while the server runs.
//!
//! Protected by the claims lock (see the parent), except the condition variables, which protect themselves, and the
//! seats, which say how.
//!
//! What lies here has Rust's layout, with `bool`, `Option` and enums in it, of which not every pattern of bytes is a value.
//! That is sound because every process that reads it was forked from the postmaster that loaded this one library, and so runs
//! the very code that wrote it; and it is written as whole values before anybody reads it.

use std::mem::{align_of, size_of};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicI64};

use lease_core::{Entry, GuardSlot, Head, Memory, Name, Tx, Waiter};

use super::{Key, MAX_CLAIMS, View};
use crate::pg::condvar::ConditionVariable;
use crate::pg::{proc, shmem};

type KeyEntry = Entry<Key, Name>;

/// Version counters: two keys that share one only make each other look again.
const VERSIONS: usize = 1 << 14;

/// One of each part, in this order. Counts follow from the settings, so every process finds the same places.
pub struct Layout {
    base: NonNull<u8>,
    counts: Counts,
}

#[derive(Clone, Copy)]
struct Counts {
    claims: u32,
    buckets: usize,
    entries: usize,
    guards: usize,
    procs: usize,
}

/// Byte offsets of the parts.
struct Offsets {
    head: usize,
    versions: usize,
    buckets: usize,
    entries: usize,
    guards: usize,
    waiters: usize,
    sleepers: usize,
    seats: usize,
    end: usize,
}

/// What a process has here for its waits, besides its place in the lists.
#[derive(Default)]
pub struct Seat {
    /// Somebody has decided to wake it. Set and cleared under the claims lock.
    pub woken: AtomicBool,
    /// Written by the process itself while it stands in no list; read under the claims lock while it stands in one.
    pub since: AtomicI64,
    pub deadline: AtomicI64,
}

impl Counts {
    fn now() -> Counts {
        let claims = MAX_CLAIMS.get().unsigned_abs();
        let procs = proc::capacity();
        // who waits for a key that nobody is changing needs an entry too
        let entries = claims as usize + procs;
        Counts { claims, buckets: entries.next_power_of_two(), entries, guards: claims as usize, procs }
    }

    fn offsets(self) -> Offsets {
        let mut end = 0;
        let mut place = |size: usize, align: usize, count: usize| {
            let start = usize::next_multiple_of(end, align);
            end = start + size * count;
            start
        };
        Offsets {
            head: place(size_of::<Head>(), align_of::<Head>(), 1),
            versions: place(size_of::<u64>(), align_of::<u64>(), VERSIONS),
            buckets: place(size_of::<u32>(), align_of::<u32>(), self.buckets),
            entries: place(size_of::<KeyEntry>(), align_of::<KeyEntry>(), self.entries),
            guards: place(size_of::<GuardSlot>(), align_of::<GuardSlot>(), self.guards),
            waiters: place(size_of::<Waiter<Name>>(), align_of::<Waiter<Name>>(), self.procs),
            sleepers: place(size_of::<ConditionVariable>(), align_of::<ConditionVariable>(), self.procs),
            seats: place(size_of::<Seat>(), align_of::<Seat>(), self.procs),
            end,
        }
    }
}

/// Bytes to ask for.
pub fn size() -> usize {
    Counts::now().offsets().end
}

/// Lays the memory out, once, before any other process can see it.
pub fn init(base: NonNull<u8>) {
    let layout = Layout { base, counts: Counts::now() };
    let Counts { entries, guards, procs, .. } = layout.counts;
    let offsets = layout.counts.offsets();
    // SAFETY: `base` has room for all parts (`size`), aligned for each, and only this process sees it yet. `fill` writes
    // whole values, so the slices that `memory` makes are of initialised elements.
    unsafe {
        layout.at::<Head>(offsets.head).write(Head::default());
        fill(layout.at::<u64>(offsets.versions), VERSIONS, || 0);
        fill(layout.at::<u32>(offsets.buckets), layout.counts.buckets, || 0);
        fill(layout.at::<KeyEntry>(offsets.entries), entries, KeyEntry::default);
        fill(layout.at::<GuardSlot>(offsets.guards), guards, GuardSlot::default);
        fill(layout.at::<Waiter<Name>>(offsets.waiters), procs, Waiter::<Name>::default);
        fill(layout.at::<Seat>(offsets.seats), procs, Seat::default);
        layout.memory().format(layout.counts.claims);
    }
    for proc in 0..procs {
        layout.sleeper(proc as u32).init();
    }
}

/// # Safety
/// `first` must point to room for `count` values that nobody else uses.
unsafe fn fill<T>(first: NonNull<T>, count: usize, value: impl Fn() -> T) {
    for i in 0..count {
        // SAFETY: the caller promises `count` places.
        unsafe { first.add(i).write(value()) };
    }
}

/// The memory as it is. Only behind an entry point that asked whether the library is ready.
pub fn get() -> Layout {
    Layout { base: shmem::base().expect("asked at the entry point"), counts: Counts::now() }
}

impl Layout {
    fn at<T>(&self, offset: usize) -> NonNull<T> {
        // SAFETY: offsets are below the size that was asked for.
        unsafe { self.base.add(offset).cast() }
    }

    /// All that the claims lock protects.
    ///
    /// # Safety
    /// The claims lock must be held exclusively, and no other result of this function be alive.
    pub unsafe fn memory(&self) -> Memory<'_, Key, Name> {
        let o = self.counts.offsets();
        // SAFETY: the parts do not overlap, `init` wrote every element, and the caller is alone with them.
        unsafe {
            Memory {
                head: self.at::<Head>(o.head).as_mut(),
                versions: slice::from_raw_parts_mut(self.at(o.versions).as_ptr(), VERSIONS),
                buckets: slice::from_raw_parts_mut(self.at(o.buckets).as_ptr(), self.counts.buckets),
                entries: slice::from_raw_parts_mut(self.at(o.entries).as_ptr(), self.counts.entries),
                guards: slice::from_raw_parts_mut(self.at(o.guards).as_ptr(), self.counts.guards),
                waiters: slice::from_raw_parts_mut(self.at(o.waiters).as_ptr(), self.counts.procs),
            }
        }
    }

    /// The same, to be looked at.
    ///
    /// # Safety
    /// The claims lock must be held as long as the result is used.
    pub unsafe fn view<'a>(&'a self, running: &'a dyn Fn(Tx) -> bool) -> View<'a> {
        let o = self.counts.offsets();
        // SAFETY: as in `memory`; nobody writes while the lock is held.
        unsafe {
            View {
                buckets: slice::from_raw_parts(self.at(o.buckets).as_ptr(), self.counts.buckets),
                entries: slice::from_raw_parts(self.at(o.entries).as_ptr(), self.counts.entries),
                guards: slice::from_raw_parts(self.at(o.guards).as_ptr(), self.counts.guards),
                waiters: slice::from_raw_parts(self.at(o.waiters).as_ptr(), self.counts.procs),
                running,
            }
        }
    }

    /// The version counters.
    ///
    /// # Safety
    /// The claims lock must be held as long as the result is used.
    pub unsafe fn versions(&self) -> &[u64] {
        // SAFETY: as in `memory`; nobody writes while the lock is held.
        unsafe { slice::from_raw_parts(self.at(self.counts.offsets().versions).as_ptr(), VERSIONS) }
    }

    /// The condition variable on which a process sleeps.
    pub fn sleeper(&self, proc: u32) -> &'static ConditionVariable {
        assert!((proc as usize) < self.counts.procs);
        // SAFETY: initialised by `init`, within bounds, and shared memory outlives the process.
        unsafe { self.at::<ConditionVariable>(self.counts.offsets().sleepers).add(proc as usize).as_ref() }
    }

    pub fn seat(&self, proc: u32) -> &'static Seat {
        assert!((proc as usize) < self.counts.procs);
        // SAFETY: as `sleeper`; what changes in it is atomic or in a cell.
        unsafe { self.at::<Seat>(self.counts.offsets().seats).add(proc as usize).as_ref() }
    }
}
