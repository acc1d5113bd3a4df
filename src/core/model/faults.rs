//! The shortest ways to the faults that the search and the simulator have found, kept as they were walked.
//!
//! Each is a scenario and the steps that led to the violation in the code of that day.

use super::scenarios as on;
use super::search::holds_on_the_way;
use super::world::Action::{self, Abort, Freeze, Step, Tick};
use super::world::Scenario;

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;

fn walk(scenario: &Scenario, actions: &[Action]) {
    if let Some(trace) = holds_on_the_way(scenario, actions) {
        panic!("{}: {trace}", scenario.name);
    }
}

/// FIFO: that a row had been free for longer than the grace let a newcomer pass a head that had only just queued up.
#[test]
fn a_head_that_has_just_queued_up_is_passed() {
    walk(&on::newcomer(on::bounds(3, 1, 1, 0)), &[Step(A), Step(A), Tick, Step(B), Step(A)]);
}

/// FIFO: the same after a claim that stood meanwhile was removed: the head could not have had its turn.
#[test]
fn a_head_is_passed_because_it_was_there_before_the_key_came_up() {
    let begun = [Step(A), Step(A), Step(A), Abort(A), Step(B), Step(B), Tick, Step(B), Step(C), Step(C), Step(C)];
    walk(&on::newcomer(on::bounds(3, 1, 1, 0)), &begun);
    let late = [Step(A), Step(A), Step(A), Step(B), Step(B), Tick, Abort(A), Step(B), Step(C), Step(C), Step(C)];
    walk(&on::newcomer(on::bounds(3, 1, 1, 0)), &late);
    walk(&on::newcomer_after_a_lapse(on::bounds(4, 1, 1, 0)), &[Step(B), Step(C), Step(C), Tick, Step(C)]);
}

/// FIFO: who came to be the head only now was taken to have had its turn since it queued up.
#[test]
fn a_head_is_passed_because_it_was_there_before_it_was_the_head() {
    let steps = [Step(A), Step(A), Step(B), Abort(B), Step(C), Tick, Step(B), Step(A)];
    walk(&on::queue_behind_a_claim(on::bounds(3, 1, 0, 0)), &steps);
}

/// P4: the end of a guard woke the head alone, which had stopped; the one that watches over it slept on.
#[test]
fn nobody_watches_over_a_head_that_a_guard_had_stopped() {
    let steps = [
        Step(A),
        Step(A),
        Step(A),
        Step(A),
        Step(B),
        Freeze(B),
        Step(C),
        Step(C),
        Tick,
        Step(C),
        Abort(A),
        Step(A),
        Tick,
    ];
    walk(&on::guard_and_takeover(on::bounds(4, 1, 1, 0)), &steps);
}

/// P4: so did the removal of an ended transaction's claim.
#[test]
fn nobody_watches_over_a_head_that_removed_a_claim() {
    let steps = [
        Step(A),
        Step(A),
        Step(A),
        Step(A),
        Step(A),
        Step(B),
        Step(B),
        Step(C),
        Step(C),
        Step(C),
        Step(A),
        Step(B),
        Freeze(B),
        Tick,
    ];
    walk(&on::stopped_in_a_queue(on::bounds(4, 0, 1, 0)), &steps);
}

/// P6: a release behind another transaction's commit slept on when the lease had ended, and `lapsed` was the answer.
#[test]
fn a_holder_sleeps_past_the_end_of_its_lease() {
    let sealed = [Step(A), Step(A), Step(A), Step(A), Step(A), Step(A), Step(A), Step(C), Step(C), Step(C), Tick, Tick];
    walk(&on::crossed_guards_of_three(on::bounds(2, 1, 0, 0)), &sealed);
    let open = [Step(A), Step(A), Step(A), Step(B), Step(B), Step(B), Tick, Tick];
    walk(&on::holder_beside_the_queue(on::bounds(3, 1, 0, 0)), &open);
}

/// P6: an acquire by the lease's own owner was not woken when the change that stopped it was rolled back.
#[test]
fn a_holder_that_acquires_again_is_not_woken() {
    let steps = [Step(A), Step(A), Step(B), Step(B), Step(B), Step(A), Abort(B), Step(B)];
    walk(&on::acquire_beside_a_force_release(on::bounds(3, 1, 0, 0)), &steps);
}
