//! The feed: a ring of new deadlines, written by commits and read by every sweeper at its own pace.
//!
//! Nobody waits for a reader: what it has not read in time is overwritten, which it finds out, and then reads its table. Only
//! what makes a deadline earlier is told, new grants and shortened renewals; a sweeper finds the rest when the old one comes.
//!
//! Protected by the feed lock, together with the moment until which each sweeper sleeps: so a sweeper that goes to sleep
//! has read everything, and whoever writes later sees until when it sleeps.

use std::sync::atomic::Ordering::Relaxed;

use lease_core::{Name, Time};

use super::databases::{self, Slot};
use super::{FEED_LOCK, Key, memory};
use crate::pg::{Result, lwlock};

/// A power of two.
const CAPACITY: usize = 4096;

/// How many entries one holding of the lock writes or copies: nobody waits for a large commit or a slow reader.
const CHUNK: u64 = 128;

pub struct Ring {
    /// How many were ever written; the place of the next is that modulo the capacity.
    written: u64,
    entries: [Entry; CAPACITY],
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    deadline: Time,
}

/// After a commit. Raises nothing, waits for nobody.
pub fn publish(deadlines: impl Iterator<Item = (Key, Time)>) {
    let mut deadlines = deadlines.peekable();
    while deadlines.peek().is_some() {
        lwlock::get(FEED_LOCK).exclusive(|| {
            // SAFETY: the feed lock is held exclusively until the closure ends.
            let ring = unsafe { memory::ring().as_mut() };
            for (key, deadline) in deadlines.by_ref().take(CHUNK as usize) {
                ring.entries[ring.written as usize % CAPACITY] = Entry { key, deadline };
                ring.written += 1;
                databases::with_mine(|slot| wake_if(slot, deadline));
                if ring.written.is_multiple_of(CAPACITY as u64 / 2) {
                    // before the sweepers of databases where nothing happens lose their place
                    databases::slots().iter().for_each(|slot| wake_if(slot, Time::PAST.plus(1)));
                }
            }
        });
    }
}

fn wake_if(slot: &Slot, earlier: Time) {
    if earlier.0 < slot.wakes_at.load(Relaxed) {
        slot.wakes_at.store(Time::PAST.0, Relaxed);
        slot.wake();
    }
}

/// Where a reader is.
pub struct Cursor(u64);

impl Cursor {
    /// What is written from now on.
    pub fn now() -> Cursor {
        lwlock::get(FEED_LOCK).shared(|| {
            // SAFETY: nobody writes while the feed lock is held.
            Cursor(unsafe { memory::ring().as_ref() }.written)
        })
    }

    /// Reads on to the end; false: something was overwritten before it could be read. The cursor is at the end in any case.
    pub fn read(&mut self, database: u32, mut visit: impl FnMut(Name, Time) -> Result<()>) -> Result<bool> {
        let mut copies: Vec<(Name, Time)> = Vec::with_capacity(CHUNK as usize);
        loop {
            let read = lwlock::get(FEED_LOCK).shared(|| {
                // SAFETY: nobody writes while the feed lock is held.
                let ring = unsafe { memory::ring().as_ref() };
                if ring.written - self.0 > CAPACITY as u64 {
                    self.0 = ring.written;
                    return None;
                }
                let end = ring.written.min(self.0 + CHUNK);
                for place in self.0..end {
                    let Entry { key, deadline } = ring.entries[place as usize % CAPACITY];
                    if key.database == database {
                        copies.push((key.name, deadline));
                    }
                }
                self.0 = end;
                Some(end == ring.written)
            });
            let Some(at_end) = read else { return Ok(false) };
            for (name, deadline) in copies.drain(..) {
                visit(name, deadline)?;
            }
            if at_end {
                return Ok(true);
            }
        }
    }

    /// This process is about to sleep until then; false: there is more to read first.
    pub fn settle(&self, until: Time) -> bool {
        lwlock::get(FEED_LOCK).exclusive(|| {
            // SAFETY: the feed lock is held.
            let settled = unsafe { memory::ring().as_ref() }.written == self.0;
            if settled {
                databases::with_mine(|slot| slot.wakes_at.store(until.0, Relaxed));
            }
            settled
        })
    }
}

/// This process is awake: whoever writes need not wake it.
pub fn awake() {
    databases::with_mine(|slot| slot.wakes_at.store(Time::PAST.0, Relaxed));
}
