//! Where the parts of the shared memory lie: the claims' (`layout`), then the databases' slots, then the feed.
//!
//! Laid out by the postmaster at each start of the shared memory, the same for every process after. Nothing here takes a lock;
//! each part says which one protects it.

use std::ptr::NonNull;

use super::databases::Databases;
use super::feed::Ring;
use super::layout;
use crate::pg::shmem;

fn databases_at() -> usize {
    layout::size().next_multiple_of(align_of::<Databases>())
}

fn ring_at() -> usize {
    (databases_at() + size_of::<Databases>()).next_multiple_of(align_of::<Ring>())
}

/// Bytes to ask for.
pub fn size() -> usize {
    ring_at() + size_of::<Ring>()
}

/// Lays the memory out. Slots and feed are valid as they are given: zero.
pub fn init(base: NonNull<u8>) {
    layout::init(base);
}

fn base() -> NonNull<u8> {
    shmem::base().expect("asked at the entry point")
}

pub(super) fn databases() -> &'static Databases {
    // SAFETY: within the size that was asked for; all of it is atomics, for which zero is a value; shared memory outlives
    // the process.
    unsafe { base().add(databases_at()).cast().as_ref() }
}

/// Under the feed lock only.
pub(super) fn ring() -> NonNull<Ring> {
    // SAFETY: within the size that was asked for. Zero is a value of all its parts.
    unsafe { base().add(ring_at()).cast() }
}
