//! Names for the rules of the protocol that the tests switch off, to see that the model then finds what they prevent.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum Rule {
    /// 1: an instant is sampled in the section that uses it.
    InstantInSection,
    /// 3: a broken claim is never made anew by its former owner.
    Serial,
    /// 4: what was read counts only if no claim has ended since.
    Version,
    /// 5: the claim of a transaction that has ended is removed by whoever meets it.
    Reap,
    /// 5: an acquire that does not wait still waits for a lapse that is being written.
    SealedMaintenance,
    /// 5: renew, release and commits wait beside the queue.
    BesideTheQueue,
    /// 6: who brings a deadline forward wakes the head.
    LoweredDeadline,
    /// 7: a savepoint's rollback gives the claim its former kind and deadline, or ends it.
    SavepointRestores,
    /// 7: and wakes those whose timers are set to what it was.
    SavepointWakes,
    /// 9: a commit seals everything or nothing.
    AllOrNothing,
    /// 10: guards are judged anew after the seal.
    GuardsAnew,
    /// 10: the floor is raised to the greatest of what it is and what it has to be. Off together with `OnePurge`.
    FloorGreatest,
    /// 16: one purge at a time.
    OnePurge,
    /// 12: who leaves the head of a queue wakes the next.
    PassTheTurn,
    /// 16: what was decided before all epochs were raised cannot commit.
    Generation,
}

/// Whether a rule is in force: always, outside the tests.
#[cfg(not(test))]
pub(crate) const fn rule(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(crate) use switches::{rule, without};

#[cfg(test)]
mod switches {
    use std::cell::Cell;

    use super::Rule;

    thread_local! {
        static OFF: Cell<u32> = const { Cell::new(0) };
    }

    pub(crate) fn rule(rule: Rule) -> bool {
        OFF.get() & (1 << rule as u32) == 0
    }

    /// Runs `f` with these rules switched off, in this thread.
    pub(crate) fn without<R>(rules: &[Rule], f: impl FnOnce() -> R) -> R {
        struct Restore(u32);
        impl Drop for Restore {
            fn drop(&mut self) {
                OFF.set(self.0);
            }
        }
        let _restore = Restore(OFF.get());
        OFF.set(rules.iter().fold(OFF.get(), |off, rule| off | 1 << *rule as u32));
        f()
    }
}
